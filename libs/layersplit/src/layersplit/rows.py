"""What a layer stores per token, who owns which layer, and who computes which tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

from layersplit.errors import OutOfRange


@dataclass(frozen=True)
class LayerRows:
    """Bytes per token of one layer: its KV row, and its indexer row (0: it has no indexer)."""

    kv_bytes: int
    index_bytes: int

    def __post_init__(self) -> None:
        if self.kv_bytes < 1 or self.index_bytes < 0:
            raise OutOfRange("row bytes", "kv from 1 and index from 0", self)

    @property
    def token_bytes(self) -> int:
        """Both rows."""
        return self.kv_bytes + self.index_bytes


@dataclass(frozen=True)
class CacheShape:
    """A cache: rows of each layer, and room for so many tokens."""

    layers: tuple[LayerRows, ...]
    tokens: int

    def __post_init__(self) -> None:
        if not self.layers or self.tokens < 1:
            raise OutOfRange("cache", "at least one layer and one token", self)

    @property
    def total_bytes(self) -> int:
        """What a rank that stores every layer needs."""
        return self.tokens * sum(layer.token_bytes for layer in self.layers)


def owner_map(layers: Sequence[LayerRows], ranks: int) -> tuple[int, ...]:
    """The owner of each layer: the rank with the fewest bytes so far, the lowest of equals.

    Layers of one size go round the ranks, so that neighbours in time are broadcast by different
    ranks and none stores more than one layer above another.
    """
    if ranks < 1:
        raise OutOfRange("ranks", "at least one", ranks)
    stored = [0] * ranks
    owners = []
    for layer in layers:
        owner = min(range(ranks), key=lambda rank: (stored[rank], rank))
        stored[owner] += layer.token_bytes
        owners.append(owner)
    return tuple(owners)


def tokens_of(first: int, end: int, rank: int, ranks: int) -> range:
    """The tokens of a chunk that one rank computes: equal stretches, one longer for the first."""
    count, more = divmod(end - first, ranks)
    begin = first + rank * count + min(rank, more)
    return range(begin, begin + count + (rank < more))
