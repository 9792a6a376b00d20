"""A pool as regions: families of equal runs, one per block, a fixed stride apart.

A region is what NIXL's readers see as one row of descriptors: vLLM's `block_lens`, `block_strides`
and base addresses. LBHNC has one per layer, LHBNC one per layer and head, the block-outermost
layouts one for the whole pool.
"""

from dataclasses import dataclass

import numpy as np

from kv_layout.pools import Pool
from kv_layout.runs import Axis, Copies, concatenate, fuse, merge, spread


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
