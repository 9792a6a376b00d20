"""Regions: every byte once, and equal places in two engines' regions are the same bytes."""

import numpy as np
import pytest

from kv_layout import regions
from kv_layout.caches import Cache
from kv_layout.layouts import KVLayout
from kv_layout.pools import Pool
from kv_layout.transfers import Tokens, plan

KV = (Cache("kv", 3, 4, 8),)
LATENT = (Cache("latent", 3, 1, 6), Cache("indexer", 2, 1, 2))
COUNTS = [
    (KVLayout.LBHNC, KV, 3),
    (KVLayout.LBNHC, KV, 3),
    (KVLayout.LHBNC, KV, 12),
    (KVLayout.BLHNC, KV, 1),
    (KVLayout.BLNHC, KV, 1),
    (KVLayout.BHLNC, KV, 1),
    (KVLayout.LBHNC, LATENT, 5),
    (KVLayout.BLHNC, LATENT, 1),
]


@pytest.mark.parametrize(("layout", "caches", "count"), COUNTS)
def test_a_pool_has_one_region_per_run_that_a_block_is_made_of(layout, caches, count):
    assert len(regions.regions(Pool(layout, caches, 5, 2))) == count


def starts_of(region, blocks):
    """Where the region's runs of these blocks begin."""
    return [region.base + block * region.stride_bytes for block in blocks]


@pytest.mark.parametrize(("layout", "caches", "count"), COUNTS)
def test_the_regions_hold_every_byte_once(layout, caches, count):
    pool = Pool(layout, caches, 5, 2, base=4096)
    seen = np.zeros(pool.size_bytes, dtype=np.uint8)

    for region in regions.regions(pool):
        for address in starts_of(region, range(pool.blocks)):
            seen[address - pool.base : address - pool.base + region.block_bytes] += 1

    assert (seen == 1).all()


def test_padding_belongs_to_no_region():
    pool = Pool(KVLayout.BLHNC, LATENT, 5, 2, block_alignment=64)

    assert [region.block_bytes for region in regions.regions(pool)] == [3 * 12 + 2 * 4]
    assert [region.stride_bytes for region in regions.regions(pool)] == [64]


@pytest.mark.parametrize(("layout", "caches", "count"), COUNTS)
def test_the_chosen_blocks_of_the_regions_are_the_plan_of_the_same_blocks(layout, caches, count):
    source = Pool(layout, caches, 7, 2, base=4096)
    target = Pool(layout, caches, 9, 2, base=1 << 20)
    tables = [1, 5, 3], [7, 1, 5]

    here, there = regions.regions(source), regions.regions(target)
    copies = plan(source, tables[0], target, tables[1], Tokens(6))

    lengths = [region.block_bytes for region in here]
    assert lengths == [region.block_bytes for region in there]
    chosen = [
        (*addresses, region.block_bytes)
        for region, other in zip(here, there, strict=True)
        for addresses in zip(starts_of(region, tables[0]), starts_of(other, tables[1]), strict=True)
    ]
    planned = (copies.source.tolist(), copies.target.tolist(), copies.length.tolist())
    assert sorted(chosen) == sorted(zip(*planned, strict=True))
