"""What can go wrong in a worker, apart from what vLLM and Dynamo raise themselves."""


class EngineError(Exception):
    """Base of the worker's own errors."""


class EngineNotStarted(EngineError):
    """A request came before the engine was up or after it was shut down."""


class WorkerDraining(EngineError):
    """The worker finishes what it has and takes nothing new; the router must choose another one."""


class AbortedBeforeItCame(EngineError):
    """A request came whose abort had come before it; whoever sent it has left."""


class HookMissing(EngineError):
    """vLLM could not load one of our plugins; it only logs that."""


class GrammarPrefixRefused(EngineError):
    """The tokens that an answer is to go on from are no beginning of what its grammar allows."""

    def __init__(self, count: int, place: int, token_id: int) -> None:
        super().__init__(
            f"the last {count} prompt tokens do not follow the grammar, or end it: token {token_id}"
            f" at place {place}"
        )


class PeerNotPacked(EngineError):
    """A peer's KV blocks are not the same rows as ours."""

    def __init__(self, what: str, expected: object, got: object) -> None:
        super().__init__(f"packed KV blocks: expected a peer with {what} {expected}, got {got}")
