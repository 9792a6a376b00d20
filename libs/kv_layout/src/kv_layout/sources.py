"""Which source rank a target rank reads each head from.

Ranks that hold the same head are interchangeable, so readers spread over them: the k-th copy on the
target's side reads the k-th on the source's.
"""

from dataclasses import dataclass

from kv_layout.caches import Cache, Shard


@dataclass(frozen=True)
class Reading:
    """Heads of one cache that one target rank reads from one source rank; whole-model numbers."""

    cache: Cache
    source_rank: int
    heads: range


def readings(caches: tuple[Cache, ...], source_ranks: int, target: Shard) -> list[Reading]:
    """Every head the target holds, exactly once, in order of cache and head.

    Neighbouring heads of one source rank are one reading. Raises HeadsDoNotSplit.
    """
    result: list[Reading] = []
    for cache in caches:
        mine = target.heads_of(cache)
        copy = target.rank % max(1, target.ranks // cache.heads)
        begin = mine.start
        while begin < mine.stop:
            holders = _holders(cache, begin, source_ranks)
            rank = holders[copy % len(holders)]
            end = min(mine.stop, Shard(rank, source_ranks).heads_of(cache).stop)
            result.append(Reading(cache, rank, range(begin, end)))
            begin = end
    return result


def _holders(cache: Cache, head: int, ranks: int) -> range:
    if ranks <= cache.heads:
        first = head // (Shard(0, ranks).heads_of(cache).stop)
        return range(first, first + 1)
    Shard(0, ranks).heads_of(cache)  # raises when the heads do not split
    copies = ranks // cache.heads
    return range(head * copies, (head + 1) * copies)
