"""A pool as regions: families of equal runs, one per block, a fixed stride apart.

A region is what NIXL's readers see as one row of descriptors: vLLM's `block_lens`, `block_strides`
and base addresses. LBHNC has one per layer, LHBNC one per layer and head, the block-outermost
layouts one for the whole pool. Engines whose pools have the same layout, block size and heads per
rank prepare the lists once per peer and then name descriptors by number, which is far cheaper than
addresses: entry `region * blocks + block`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kv_layout.arrays import Integers
from kv_layout.errors import CachesDiffer
from kv_layout.pools import Pool
from kv_layout.runs import Axis, Copies, concatenate, fuse, merge, spread
from kv_layout.transfers import checked_table


@dataclass(frozen=True)
class Region:
    """Runs of `block_bytes` at `base + block * stride_bytes`, for each block of the pool."""

    base: int
    block_bytes: int
    stride_bytes: int
    blocks: int


def regions(pool: Pool) -> list[Region]:
    """The fewest regions that hold every byte of every block, in order of cache and address."""
    found = []
    for cache in pool.caches:
        at = pool.strides[cache.name]
        loops = [
            Axis(cache.layers, at.layer, at.layer),
            Axis(len(pool.heads_of(cache)), at.head, at.head),
            Axis(pool.block_tokens, at.token, at.token),
        ]
        run, axes = fuse(cache.content_bytes, loops)
        starts = spread(np.array([pool.base + at.offset], dtype=np.int64), axes, "source")
        runs = Copies(starts, starts, np.full(starts.size, run, dtype=np.int64))
        found.append((runs, at.block))
    if pool.layout.is_block_outermost:
        # Every cache advances by the row, so pages that touch in block 0 touch in every block.
        found = [(merge(concatenate([runs for runs, _ in found])), pool.block_bytes)]
    return [
        Region(base, length, stride, pool.blocks)
        for runs, stride in found
        for base, length in zip(runs.source.tolist(), runs.length.tolist(), strict=True)
    ]


def prepared_list(pool: Pool, device_id: int = 0) -> npt.NDArray[np.uint64]:
    """Every run of the pool as NIXL takes it: uint64 [regions * blocks, 3].

    Columns: address, bytes, device. For `prep_xfer_dlist(get_xfer_descs(..., mem_type))`.
    """
    parts = []
    for region in regions(pool):
        rows: npt.NDArray[np.uint64] = np.empty((region.blocks, 3), dtype=np.uint64)
        rows[:, 0] = region.base + np.arange(region.blocks) * region.stride_bytes
        rows[:, 1] = region.block_bytes
        rows[:, 2] = device_id
        parts.append(rows)
    return np.concatenate(parts)


def prepared_indices(pool: Pool, block_table: Sequence[int]) -> npt.NDArray[np.int32]:
    """Entries of `prepared_list` that hold these blocks: int32 [regions * len(block_table)].

    In the order region, block: the k-th entry here and the k-th on a pool that `pairs_with` this
    one are the same bytes. Raises what `checked_table` raises.
    """
    tokens = len(block_table) * pool.block_tokens
    table = checked_table("prepared", block_table, pool, tokens)
    steps: Integers = np.arange(len(regions(pool)), dtype=np.int64) * pool.blocks
    return (steps[:, None] + table).ravel().astype(np.int32)


def require_pair(source: Pool, target: Pool) -> None:
    """Raises CachesDiffer unless equal entries of both prepared lists hold the same bytes."""
    shapes = [
        (
            pool.layout.name,
            pool.block_tokens,
            [(cache, pool.heads_of(cache)) for cache in pool.caches],
        )
        for pool in (source, target)
    ]
    if shapes[0] != shapes[1]:
        raise CachesDiffer(*shapes)
