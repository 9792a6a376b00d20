"""What a model keeps for one token in one layer, and how tensor-parallel ranks share it."""

from dataclasses import dataclass

from kv_layout.errors import HeadsDoNotSplit, WrongCount


@dataclass(frozen=True)
class Cache:
    """One kind of cached row: the same head count and size in each of its layers.

    `heads` is the whole model's count. An MLA latent or an indexer key has one head, so every
    tensor-parallel rank holds a copy of it.
    """

    name: str
    layers: int
    heads: int
    content_bytes: int

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "content_bytes"):
            require_count(f"cache {self.name}: {name}", getattr(self, name))

    @property
    def token_bytes(self) -> int:
        """Bytes of one token over all layers and heads."""
        return self.layers * self.heads * self.content_bytes


@dataclass(frozen=True)
class Shard:
    """Which rank of how many."""

    rank: int = 0
    ranks: int = 1

    def __post_init__(self) -> None:
        require_count("tensor-parallel size", self.ranks)
        require_count("tensor-parallel rank", self.rank, least=0, most=self.ranks - 1)

    def heads_of(self, cache: Cache) -> range:
        """The heads that this rank holds, in order.

        With more ranks than heads, neighbouring ranks hold the same head (vLLM:
        `ModelConfig.get_num_kv_heads`). Raises HeadsDoNotSplit.
        """
        if cache.heads % self.ranks == 0:
            count = cache.heads // self.ranks
            return range(self.rank * count, (self.rank + 1) * count)
        if self.ranks % cache.heads == 0:
            head = self.rank // (self.ranks // cache.heads)
            return range(head, head + 1)
        raise HeadsDoNotSplit(cache.name, cache.heads, self.ranks)


def require_count(name: str, value: object, least: int = 1, most: int | None = None) -> None:
    """Raises WrongCount unless the value is an int in the range. A bool is none."""
    is_count = isinstance(value, int) and not isinstance(value, bool)
    if not (is_count and least <= value and (most is None or value <= most)):  # type: ignore[operator]  # checked in is_count
        upper = "" if most is None else f" to {most}"
        raise WrongCount(name, f"a whole number from {least}{upper}", value)


ALONE = Shard()
"""A rank that holds every head."""
