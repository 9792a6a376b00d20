"""The copies that move one request's KV from one rank's pool into another's.

Both sides may differ in layout, block size and tensor-parallel size. A plan copies every byte of
the asked tokens and heads exactly once, and nothing outside the target's block table.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kv_layout.arrays import Integers
from kv_layout.caches import require_count
from kv_layout.errors import BlockOutOfRange, BlockTwice, CachesDiffer, TooFewBlocks, WrongDtype
from kv_layout.pools import Pool
from kv_layout.runs import Axis, Copies, concatenate, fuse, merge, spread
from kv_layout.sources import Reading, readings


@dataclass(frozen=True)
class Tokens:
    """Tokens of a context to move: `first` up to, not including, `end`.

    With `whole_blocks` the rest of the last block travels too, as far as both sides have room for
    it: a block then stays one run where the layout makes it one. Those bytes have no meaning.
    """

    end: int
    first: int = 0
    whole_blocks: bool = True

    def __post_init__(self) -> None:
        require_count("first token", self.first, least=0)
        require_count("end token", self.end, least=self.first + 1)

    def end_in(self, source: Pool, target: Pool) -> int:
        """Where copying ends: `end`, or the last token for which both sides have room."""
        if not self.whole_blocks:
            return self.end
        return min(
            blocks_for(self.end, pool.block_tokens) * pool.block_tokens for pool in (source, target)
        )


@dataclass(frozen=True)
class Segments:
    """Stretches of tokens inside one block on both sides; int64 arrays [segments].

    `source_place` and `target_place` index the block tables, not the pools.
    """

    source_place: Integers
    source_token: Integers
    target_place: Integers
    target_token: Integers
    tokens: Integers


def blocks_for(tokens: int, block_tokens: int) -> int:
    """How many blocks hold so many tokens."""
    return -(-tokens // block_tokens)


def plan(
    source: Pool,
    source_blocks: Sequence[int],
    target: Pool,
    target_blocks: Sequence[int],
    tokens: Tokens,
) -> Copies:
    """The descriptors from this source rank to this target rank; none if it need not read there.

    A block table lists the blocks of the context from token 0 on. Raises CachesDiffer,
    HeadsDoNotSplit, TooFewBlocks, BlockOutOfRange, BlockTwice and WrongDtype.
    """
    from_table = checked_table("source", source_blocks, source, tokens.end)
    to_table = checked_table("target", target_blocks, target, tokens.end)
    segments = segments_of(source, target, tokens)
    blocks = (from_table[segments.source_place], to_table[segments.target_place])
    return _copies(source, target, segments, blocks)


def count_descriptors(source: Pool, target: Pool, tokens: Tokens) -> int:
    """Descriptors of a plan whose blocks are scattered: no two are neighbours in either pool.

    Looks at one segment of each kind, so it also counts what nobody would send.
    """
    segments = segments_of(source, target, tokens)
    kinds = np.stack([segments.source_token, segments.target_token, segments.tokens])
    shapes, counts = np.unique(kinds, axis=1, return_counts=True)
    total = 0
    for (source_token, target_token, length), count in zip(shapes.T, counts, strict=True):
        zero: Integers = np.zeros(1, dtype=np.int64)
        one = Segments(
            zero, zero + source_token, zero, zero + target_token, np.array([length], dtype=np.int64)
        )
        total += int(count) * len(_copies(source, target, one, (zero, zero)))
    return total


def total_bytes(source: Pool, target: Pool, tokens: Tokens) -> int:
    """Bytes of the plan between these two ranks, whatever its blocks."""
    moved = tokens.end_in(source, target) - tokens.first
    return moved * sum(
        part.cache.layers * len(part.heads) * part.cache.content_bytes
        for part in _parts(source, target)
    )


def segments_of(source: Pool, target: Pool, tokens: Tokens) -> Segments:
    """The tokens cut at every block border of either side."""
    end = tokens.end_in(source, target)
    borders = [np.array([tokens.first], dtype=np.int64)]
    for step in (source.block_tokens, target.block_tokens):
        next_border = (tokens.first // step + 1) * step
        borders.append(np.arange(next_border, end, step, dtype=np.int64))
    begins = np.unique(np.concatenate(borders))
    return Segments(
        begins // source.block_tokens,
        begins % source.block_tokens,
        begins // target.block_tokens,
        begins % target.block_tokens,
        np.diff(begins, append=end),
    )


def checked_table(side: str, blocks: Sequence[int], pool: Pool, tokens: int) -> Integers:
    """The block table as int64, cut to what the tokens need.

    Raises WrongDtype, TooFewBlocks, BlockOutOfRange and BlockTwice.
    """
    try:
        table = np.asarray(blocks)
    except ValueError as error:  # rows of unequal length
        raise WrongDtype(f"{side} block table", "whole numbers in one row", error) from error
    needed = blocks_for(tokens, pool.block_tokens)
    if table.size and (table.dtype.kind not in "iu" or table.ndim != 1):
        raise WrongDtype(
            f"{side} block table", "whole numbers in one row", f"{table.dtype} {list(table.shape)}"
        )
    if table.size < needed:
        raise TooFewBlocks(side, needed, table.size)
    table = table[:needed]
    outside = (table < 0) | (table >= pool.blocks)
    if outside.any():
        raise BlockOutOfRange(side, int(table[outside][0]), pool.blocks)
    in_order = np.sort(table)
    twice = in_order[1:] == in_order[:-1]
    if twice.any():
        raise BlockTwice(side, int(in_order[1:][twice][0]))
    return table.astype(np.int64)


def _parts(source: Pool, target: Pool) -> list[Reading]:
    if source.caches != target.caches:
        raise CachesDiffer(source.caches, target.caches)
    return [
        part
        for part in readings(target.caches, source.shard.ranks, target.shard)
        if part.source_rank == source.shard.rank
    ]


def _copies(
    source: Pool, target: Pool, segments: Segments, blocks: tuple[Integers, Integers]
) -> Copies:
    copies = []
    for part in _parts(source, target):
        from_starts = _starts(source, part, blocks[0], segments.source_token)
        to_starts = _starts(target, part, blocks[1], segments.target_token)
        for length in np.unique(segments.tokens).tolist():
            chosen = segments.tokens == length
            run, axes = _loops(source, target, part, length)
            from_addresses = spread(from_starts[chosen], axes, "source")
            to_addresses = spread(to_starts[chosen], axes, "target")
            lengths = np.full(from_addresses.size, run, dtype=np.int64)
            copies.append(Copies(from_addresses, to_addresses, lengths))
    return merge(concatenate(copies))


def _starts(pool: Pool, part: Reading, blocks: Integers, tokens: Integers) -> Integers:
    """Where each segment begins: address of layer 0, the part's first head, its first token."""
    at = pool.strides[part.cache.name]
    head = part.heads.start - pool.heads_of(part.cache).start
    return pool.base + at.offset + head * at.head + blocks * at.block + tokens * at.token


def _loops(source: Pool, target: Pool, part: Reading, tokens: int) -> tuple[int, list[Axis]]:
    """One segment as a run of bytes and the loops around it."""
    here, there = source.strides[part.cache.name], target.strides[part.cache.name]
    axes = [
        Axis(part.cache.layers, here.layer, there.layer),
        Axis(len(part.heads), here.head, there.head),
        Axis(tokens, here.token, there.token),
    ]
    return fuse(part.cache.content_bytes, axes)
