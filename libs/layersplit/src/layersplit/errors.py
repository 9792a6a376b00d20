"""What can go wrong in a split cache: every message says what was expected."""


class LayerSplitError(Exception):
    """Base of everything this package raises on purpose."""


class WrongRows(LayerSplitError):
    """Rows have another dtype, shape or memory order than the layer stores."""

    def __init__(self, what: str, expected: str, got: str) -> None:
        super().__init__(f"{what}: expected {expected}, got {got}")


class OutOfRange(LayerSplitError):
    """A layer or a token outside the cache, or a count that is none."""

    def __init__(self, what: str, expected: str, got: object) -> None:
        super().__init__(f"{what}: expected {expected}, got {got}")


class AppendOutOfOrder(LayerSplitError):
    """A chunk does not begin where the layer's last one ended: rows would be lost."""

    def __init__(self, layer: int, expected: int, got: int) -> None:
        super().__init__(
            f"layer {layer}: expected a chunk that begins with token {expected}, got {got}"
        )


class NotAppended(LayerSplitError):
    """Rows were fetched that no rank has appended: the owner would send zeros."""

    def __init__(self, layer: int, appended: int, got: int) -> None:
        super().__init__(
            f"layer {layer}: expected at most the {appended} appended tokens, got {got}"
        )


class WrongGroups(LayerSplitError):
    """Process groups that cannot carry one cache's rows."""

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(f"process groups: expected {expected}, got {got}")


class RanksDisagree(LayerSplitError):
    """The ranks were given different caches: their broadcasts would not match."""

    def __init__(self, rank: int, expected: object, got: object) -> None:
        super().__init__(f"rank {rank}: expected rank 0's cache {expected}, got {got}")


class SlotsBusy(LayerSplitError):
    """A third layer was fetched while two are still being read."""

    def __init__(self, layer: int, held: list[int]) -> None:
        super().__init__(
            f"layer {layer}: expected a free slot, but layers {held} hold both; release one first"
        )


class FetchReleased(LayerSplitError):
    """Rows were asked of a fetch that has given its slot back: another layer may be in it."""

    def __init__(self, layer: int) -> None:
        super().__init__(f"layer {layer}: expected a fetch that is held, it was released")
