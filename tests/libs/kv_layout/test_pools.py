"""Addresses, views and sizes of a pool, against memory that was laid out without strides."""

from itertools import product

import numpy as np
import pytest

from kv_layout.caches import Cache, Shard
from kv_layout.errors import (
    KVLayoutError,
    LayoutCannotPack,
    Misaligned,
    UnknownName,
    WrongCount,
    WrongDtype,
    WrongShape,
)
from kv_layout.layouts import KVLayout
from kv_layout.pools import Pool
from tests.libs.kv_layout.memory import lay_out

KV = Cache("kv", 3, 4, 8)
MIXED = (Cache("latent", 2, 1, 6), Cache("indexer", 3, 1, 2))


def marked(cache, layer, block, head, token):
    """Content that says where it belongs."""
    mark = [len(cache.name), layer, block, head, token]
    return bytes((mark * cache.content_bytes)[: cache.content_bytes])


def pools():
    for layout in KVLayout:
        yield Pool(layout, (KV,), 5, 2, Shard(1, 2), base=640)
        if layout.is_block_compact:
            yield Pool(layout, MIXED, 5, 4, base=640, block_alignment=64)


@pytest.mark.parametrize("pool", list(pools()), ids=lambda p: f"{p.layout.name}-{len(p.caches)}")
def test_every_address_and_view_is_where_the_name_says(pool):
    heads = {cache.name: 2 if cache.heads > 1 else 1 for cache in pool.caches}
    memory = lay_out(pool, heads, marked, padding=0xA5)

    assert memory.size == pool.size_bytes
    for cache in pool.caches:
        view = pool.view(memory, cache.name)
        for at in product(*(range(count) for count in view.shape[:4])):
            expected = marked(cache, *at)
            begin = pool.address(cache.name, *at) - pool.base
            assert memory[begin : begin + cache.content_bytes].tobytes() == expected
            assert view[at].tobytes() == expected


def test_a_view_counts_elements_of_its_dtype_and_shares_the_memory():
    pool = Pool(KVLayout.BLHNC, (KV,), 5, 2)
    memory = np.zeros(pool.size_bytes, dtype=np.uint8)

    pool.view(memory, "kv", np.float16)[2, 4, 3, 1] = np.arange(4)

    begin = pool.address("kv", 2, 4, 3, 1)
    assert memory[begin : begin + 8].view(np.float16).tolist() == [0, 1, 2, 3]


def test_padding_is_counted_once_per_row_or_once_per_page():
    row = Pool(KVLayout.BLHNC, MIXED, 5, 4, block_alignment=64)
    pages = Pool(KVLayout.LBHNC, MIXED, 5, 4, block_alignment=64)

    assert row.block_bytes == 128  # 2 * 24 + 3 * 8 = 72 in one row
    assert pages.block_bytes == 5 * 64


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: KVLayout.named("LBNCH"), UnknownName, "expected a layout of LBHNC, LBNHC, "),
        (lambda: Cache("kv", 0, 1, 1), WrongCount, "layers: expected a whole number from 1, got 0"),
        (lambda: Cache("kv", 1, 1, 1.5), WrongCount, "content_bytes: expected a whole number"),
        (lambda: Cache("kv", True, 1, 1), WrongCount, "layers: expected a whole number"),
        (lambda: Shard(2, 2), WrongCount, "rank: expected a whole number from 0 to 1, got 2"),
        (lambda: Pool(KVLayout.LBHNC, (KV,), 0, 1), WrongCount, "blocks: expected"),
        (lambda: Pool(KVLayout.LBHNC, (), 1, 1), WrongShape, "at least one, each name once"),
        (lambda: Pool(KVLayout.LBHNC, (KV, KV), 1, 1), WrongShape, "at least one, each name once"),
        (
            lambda: Pool(KVLayout.BHLNC, MIXED, 1, 4),
            LayoutCannotPack,
            r"layout BHLNC: expected one page size without padding, got pages of \[8, 24\] bytes",
        ),
        (
            lambda: Pool(KVLayout.LHBNC, (Cache("kv", 1, 2, 3),), 2, 1, block_alignment=4),
            LayoutCannotPack,
            "got pages of 6 bytes aligned to 4",
        ),
        (
            lambda: Pool(KVLayout.BLHNC, (KV,), 1, 1, base=10, block_alignment=4),
            Misaligned,
            "base: expected a multiple of 4 bytes, got 10",
        ),
        (
            lambda: Pool(KVLayout.BLHNC, (KV,), 1, 1, base=2**63 - 8),
            WrongCount,
            "bytes of the pool: expected a whole number from 1 to 9223372036854775807",
        ),
    ],
)
def test_what_cannot_be_laid_out_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


POOL = Pool(KVLayout.LBNHC, (KV,), 5, 2)


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (("kv", 3, 0, 0, 0), "layer: expected a whole number from 0 to 2, got 3"),
        (("kv", 0, 5, 0, 0), "block: expected a whole number from 0 to 4, got 5"),
        (("kv", 0, 0, -1, 0), "head: expected a whole number from 0 to 3, got -1"),
        (("kv", 0, 0, 0, 2), "token: expected a whole number from 0 to 1, got 2"),
        (("vk", 0, 0, 0, 0), "expected a cache of kv, got 'vk'"),
    ],
)
def test_an_index_outside_the_pool_has_no_address(at, message):
    with pytest.raises(KVLayoutError, match=message):
        POOL.address(*at)


@pytest.mark.parametrize(
    ("buffer", "error", "message"),
    [
        (np.zeros(960, dtype=np.int8), WrongDtype, "buffer: expected uint8, got int8"),
        (bytes(960), WrongDtype, "buffer: expected uint8, got bytes"),
        (np.zeros(959, dtype=np.uint8), WrongShape, r"expected \[960\] contiguous, got \[959\]"),
        (np.zeros(1920, dtype=np.uint8)[::2], WrongShape, r"expected \[960\] contiguous"),
    ],
)
def test_a_buffer_that_is_not_the_pools_bytes_is_refused(buffer, error, message):
    with pytest.raises(error, match=message):
        POOL.view(buffer, "kv")


def test_a_view_whose_elements_would_lie_askew_is_refused():
    pool = Pool(KVLayout.LBHNC, (Cache("kv", 1, 1, 6),), 5, 2)
    memory = np.zeros(pool.size_bytes, dtype=np.uint8)

    with pytest.raises(Misaligned, match="content as float32: expected a multiple of 4 bytes"):
        pool.view(memory, "kv", np.float32)
