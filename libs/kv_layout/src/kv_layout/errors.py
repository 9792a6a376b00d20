"""What can be wrong with a layout, a pool or a transfer: every message says what was expected."""

from collections.abc import Iterable


class KVLayoutError(ValueError):
    """Base of everything this package raises on purpose."""


class UnknownName(KVLayoutError):
    """No layout, model or KV dtype has this name."""

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        super().__init__(f"expected a {kind} of {', '.join(known)}, got {name!r}")


class WrongCount(KVLayoutError):
    """A size that must be a whole number in some range is not."""

    def __init__(self, name: str, expected: str, got: object) -> None:
        super().__init__(f"{name}: expected {expected}, got {got!r}")
        self.name = name


class HeadsDoNotSplit(KVLayoutError):
    """Neither do the ranks divide the heads, nor the heads the ranks."""

    def __init__(self, cache: str, heads: int, ranks: int) -> None:
        super().__init__(
            f"cache {cache}: expected a tensor-parallel size that divides {heads} heads or is a "
            f"multiple of them, got {ranks}"
        )


class LayoutCannotPack(KVLayoutError):
    """The layout has no place for pages of several sizes, or for padding between pages."""

    def __init__(self, layout: str, why: str) -> None:
        super().__init__(
            f"layout {layout}: expected one page size without padding, got {why}; "
            "use LBHNC, LBNHC, BLHNC or BLNHC"
        )


class CachesDiffer(KVLayoutError):
    """The two sides of a transfer do not hold the same model's KV."""

    def __init__(self, expected: object, got: object) -> None:
        super().__init__(f"expected the source's caches {expected}, got {got}")


class TooFewBlocks(KVLayoutError):
    """A block table is shorter than the tokens it should hold."""

    def __init__(self, side: str, expected: int, got: int) -> None:
        super().__init__(f"{side} block table: expected at least {expected} blocks, got {got}")


class BlockOutOfRange(KVLayoutError):
    """A block table names a block that the pool does not have."""

    def __init__(self, side: str, block: int, blocks: int) -> None:
        super().__init__(f"{side} block table: expected blocks 0 to {blocks - 1}, got {block}")
        self.block = block


class BlockTwice(KVLayoutError):
    """A block table names one block twice: two parts of a context would share its bytes."""

    def __init__(self, side: str, block: int) -> None:
        super().__init__(f"{side} block table: expected each block once, got {block} again")
        self.block = block


class WrongDtype(KVLayoutError):
    """An array has another element type than the operation reads or writes."""

    def __init__(self, what: str, expected: str, got: object) -> None:
        super().__init__(f"{what}: expected {expected}, got {got}")


class WrongShape(KVLayoutError):
    """An array has another shape, length or memory order than expected."""

    def __init__(self, what: str, expected: str, got: object) -> None:
        super().__init__(f"{what}: expected {expected}, got {got}")


class Misaligned(KVLayoutError):
    """An address or a stride is not a multiple of what the element type or transport needs."""

    def __init__(self, what: str, alignment: int, got: int) -> None:
        super().__init__(f"{what}: expected a multiple of {alignment} bytes, got {got}")
