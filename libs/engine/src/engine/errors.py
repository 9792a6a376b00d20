"""What can go wrong in a worker, apart from what vLLM and Dynamo raise themselves."""


class EngineError(Exception):
    """Base of the worker's own errors."""


class EngineNotStarted(EngineError):
    """A request came before the engine was up or after it was shut down."""


class WorkerDraining(EngineError):
    """The worker finishes what it has and takes nothing new; the router must choose another one."""
