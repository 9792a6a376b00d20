"""Prepared lists: every byte once, and equal entries of two engines are the same bytes."""

import numpy as np
import pytest

from kv_layout import regions
from kv_layout.caches import Cache, Shard
from kv_layout.errors import BlockOutOfRange, CachesDiffer
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


@pytest.mark.parametrize(("layout", "caches", "count"), COUNTS)
def test_the_prepared_list_holds_every_byte_once(layout, caches, count):
    pool = Pool(layout, caches, 5, 2, base=4096)
    seen = np.zeros(pool.size_bytes, dtype=np.uint8)

    for address, length, device in regions.prepared_list(pool, device_id=3).tolist():
        seen[address - pool.base : address - pool.base + length] += 1
        assert device == 3

    assert (seen == 1).all()


def test_padding_belongs_to_no_region():
    pool = Pool(KVLayout.BLHNC, LATENT, 5, 2, block_alignment=64)

    assert [region.block_bytes for region in regions.regions(pool)] == [3 * 12 + 2 * 4]
    assert [region.stride_bytes for region in regions.regions(pool)] == [64]


@pytest.mark.parametrize(("layout", "caches", "count"), COUNTS)
def test_chosen_entries_are_the_plan_of_the_same_blocks(layout, caches, count):
    source = Pool(layout, caches, 7, 2, base=4096)
    target = Pool(layout, caches, 9, 2, base=1 << 20)
    tables = [1, 5, 3], [7, 1, 5]

    lists = [regions.prepared_list(pool) for pool in (source, target)]
    entries = [
        regions.prepared_indices(pool, table)
        for pool, table in zip((source, target), tables, strict=True)
    ]
    chosen = [rows[index] for rows, index in zip(lists, entries, strict=True)]
    copies = plan(source, tables[0], target, tables[1], Tokens(6))

    assert (chosen[0][:, 1] == chosen[1][:, 1]).all()
    pairs = zip(*(rows[:, 0].tolist() for rows in chosen), chosen[0][:, 1].tolist(), strict=True)
    planned = (copies.source.tolist(), copies.target.tolist(), copies.length.tolist())
    assert sorted(pairs) == sorted(zip(*planned, strict=True))


def test_a_block_outside_the_pool_has_no_entry():
    with pytest.raises(BlockOutOfRange, match="expected blocks 0 to 4, got 5"):
        regions.prepared_indices(Pool(KVLayout.BLHNC, KV, 5, 2), [5])


@pytest.mark.parametrize(
    "other",
    [
        Pool(KVLayout.BLHNC, KV, 5, 2),
        Pool(KVLayout.LBHNC, KV, 5, 4),
        Pool(KVLayout.LBHNC, LATENT, 5, 2),
        Pool(KVLayout.LBHNC, KV, 5, 2, Shard(0, 2)),
    ],
)
def test_entries_of_unequal_pools_do_not_pair(other):
    pool = Pool(KVLayout.LBHNC, KV, 5, 2)

    regions.require_pair(pool, Pool(KVLayout.LBHNC, KV, 900, 2, base=64))
    with pytest.raises(CachesDiffer, match="expected the source's caches"):
        regions.require_pair(pool, other)
