"""Plans between any two layouts, block sizes and tensor-parallel sizes, byte by byte.

Every plan is carried out between buffers laid out by `memory.py`, which knows no strides.
"""

import random
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv_layout import pools, runs, sources, transfers
from kv_layout.caches import Cache, Shard
from kv_layout.copying import copy
from kv_layout.errors import (
    BlockOutOfRange,
    BlockTwice,
    CachesDiffer,
    HeadsDoNotSplit,
    TooFewBlocks,
    WrongCount,
    WrongDtype,
    WrongShape,
)
from kv_layout.layouts import KVLayout
from kv_layout.pools import Pool
from kv_layout.runs import Copies
from kv_layout.transfers import Tokens, plan
from tests.libs.kv_layout.cases import Case, Engine, fault_of

COMPACT = [layout for layout in KVLayout if layout.is_block_compact]
LATENT = (Cache("latent", 2, 1, 5), Cache("indexer", 1, 1, 3))


@st.composite
def cases(draw):
    """A transfer of one headed cache, or of two caches of different pages."""
    is_latent = draw(st.booleans())
    heads = draw(st.sampled_from([1, 2, 4]))
    caches = (
        (
            Cache("latent", draw(st.integers(1, 3)), 1, draw(st.integers(1, 6))),
            Cache("indexer", draw(st.integers(1, 3)), 1, draw(st.integers(1, 4))),
        )
        if is_latent
        else (Cache("kv", draw(st.integers(1, 3)), heads, draw(st.integers(1, 5))),)
    )

    def engine():
        layout = draw(st.sampled_from(COMPACT if is_latent else list(KVLayout)))
        can_pad = layout is not KVLayout.LHBNC
        return Engine(
            layout,
            draw(st.sampled_from([1, 2, 3, 4, 8])),
            draw(st.sampled_from([1, 2, 4, 8])),
            draw(st.sampled_from([1, 16])) if can_pad and layout is not KVLayout.BHLNC else 1,
        )

    end = draw(st.integers(1, 20))
    return Case(
        caches,
        engine(),
        engine(),
        draw(st.integers(0, end - 1)),
        end,
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.integers(0, 2**20)),
    )


@settings(max_examples=120, deadline=None, derandomize=True)
@given(cases())
def test_a_plan_moves_each_byte_to_its_place_and_touches_nothing_else(case):
    assert fault_of(case) is None


def some_cases():
    """Every pair of layouts once, with block and tensor-parallel sizes drawn by a fixed seed."""
    pick = random.Random(5)
    for source, target in product(KVLayout, KVLayout):
        is_latent = source in COMPACT and target in COMPACT and pick.random() < 0.5
        end = pick.randint(5, 14)
        engines = [
            Engine(
                layout,
                pick.choice([2, 3, 4]),
                pick.choice([1, 2, 4]),
                pick.choice([1, 16]) if layout in COMPACT else 1,
            )
            for layout in (source, target)
        ]
        yield Case(
            LATENT if is_latent else (Cache("kv", 3, 4, 2),),
            *engines,
            pick.randint(0, 3),
            end,
            pick.random() < 0.6,
            pick.random() < 0.6,
            pick.randint(0, 2**20),
        )


CASES = list(some_cases())


@pytest.mark.parametrize(
    "case", CASES, ids=lambda c: f"{c.source.layout.name}-{c.target.layout.name}"
)
def test_every_pair_of_layouts_is_planned_right(case):
    assert fault_of(case) is None


def first_head_always(pool, part, blocks, tokens):
    at = pool.strides[part.cache.name]
    return pool.base + at.offset + blocks * at.block + tokens * at.token


def fuses_by_source_alone(run, axes):
    return fuse(run, [runs.Axis(axis.count, axis.source, axis.source) for axis in axes])


def merges_by_source_alone(copies):
    merged = merge(Copies(copies.source, copies.source, copies.length))
    order = np.argsort(copies.source, kind="stable")
    firsts = np.searchsorted(copies.source[order], merged.source)
    return Copies(merged.source, copies.target[order][firsts], merged.length)


def merges_nothing(copies):
    return copies


def cuts_at_source_blocks_only(source, target, tokens):
    return segments_of(source, source, tokens)


def forgets_the_last_segment(source, target, tokens):
    whole = segments_of(source, target, tokens)
    return transfers.Segments(
        whole.source_place[:-1],
        whole.source_token[:-1],
        whole.target_place[:-1],
        whole.target_token[:-1],
        whole.tokens[:-1],
    )


def reads_from_the_next_rank(caches, source_ranks, target):
    return [
        sources.Reading(part.cache, (part.source_rank + 1) % source_ranks, part.heads)
        for part in readings(caches, source_ranks, target)
    ]


def swaps_heads_and_tokens(pool, cache, offset):
    at = strides_of(pool, cache, offset)
    return pools.Strides(at.offset, at.layer, at.block, at.token, at.head)


def lays_caches_over_each_other(pool, cache, offset):
    at = strides_of(pool, cache, offset)
    return pools.Strides(0, at.layer, at.block, at.head, at.token)


def does_not_pad(value, step):
    return value


def takes_whole_blocks_of_the_source(tokens, source, target):
    if not tokens.whole_blocks:
        return tokens.end
    return transfers.blocks_for(tokens.end, source.block_tokens) * source.block_tokens


fuse, merge, segments_of = runs.fuse, runs.merge, transfers.segments_of
strides_of, readings = Pool._strides_of, sources.readings
MUTANTS = [
    (transfers, "_starts", first_head_always),
    (transfers, "fuse", fuses_by_source_alone),
    (transfers, "merge", merges_by_source_alone),
    (transfers, "merge", merges_nothing),
    (transfers, "segments_of", cuts_at_source_blocks_only),
    (transfers, "segments_of", forgets_the_last_segment),
    (transfers, "readings", reads_from_the_next_rank),
    (Pool, "_strides_of", swaps_heads_and_tokens),
    (Pool, "_strides_of", lays_caches_over_each_other),
    (pools, "_round_up", does_not_pad),
    (Tokens, "end_in", takes_whole_blocks_of_the_source),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m[2].__name__)
def test_a_broken_rule_is_noticed(mutant, monkeypatch):
    owner, name, broken = mutant
    monkeypatch.setattr(owner, name, broken)

    assert any(is_noticed(case) for case in CASES)


def is_noticed(case):
    """A wrong plan shows as wrong bytes, or it leaves the pool or the table."""
    try:
        return fault_of(case) is not None
    except (IndexError, ValueError):
        return True


POOL = Pool(KVLayout.LBHNC, (Cache("kv", 2, 2, 4),), 8, 4)


@pytest.mark.parametrize(
    ("blocks", "error", "message"),
    [
        ([0], TooFewBlocks, "expected at least 2 blocks, got 1"),
        ([], TooFewBlocks, "expected at least 2 blocks, got 0"),
        ([0, 8], BlockOutOfRange, "expected blocks 0 to 7, got 8"),
        ([-1, 0], BlockOutOfRange, "expected blocks 0 to 7, got -1"),
        ([3, 3], BlockTwice, "expected each block once, got 3 again"),
        ([0.0, 1.0], WrongDtype, "expected whole numbers in one row, got float64"),
        ([True, False], WrongDtype, "expected whole numbers in one row, got bool"),
        ([[0, 1]], WrongDtype, r"expected whole numbers in one row, got int64 \[1, 2\]"),
        ([[0], [1, 2]], WrongDtype, "expected whole numbers in one row, got .*inhomogeneous"),
    ],
)
def test_a_wrong_block_table_is_refused_on_either_side(blocks, error, message):
    with pytest.raises(error, match=f"source block table: {message}"):
        plan(POOL, blocks, POOL, [0, 1], Tokens(8))
    with pytest.raises(error, match=f"target block table: {message}"):
        plan(POOL, [0, 1], POOL, blocks, Tokens(8))


def test_a_plan_that_leaves_the_pool_copies_nothing():
    copies = plan(POOL, [7, 0], POOL, [0, 7], Tokens(8))
    small = Pool(POOL.layout, POOL.caches, 7, 4)
    source, target = (np.full(pool.size_bytes, 1, dtype=np.uint8) for pool in (POOL, small))
    target[:] = 0

    with pytest.raises(WrongShape, match=r"plan: expected offsets 0 to 448, got 0 to \d+"):
        copy(copies, POOL, source, small, target)
    assert not target.any()


def test_blocks_beyond_the_context_are_not_looked_at():
    copies = plan(POOL, [0, 1, 99], POOL, [2, 3, 2], Tokens(8))

    assert copies.total_bytes == 8 * 2 * 2 * 4


def test_pools_of_different_caches_are_refused():
    other = Pool(KVLayout.LBHNC, (Cache("kv", 2, 2, 8),), 8, 4)

    with pytest.raises(CachesDiffer, match="expected the source's caches"):
        plan(POOL, [0, 1], other, [0, 1], Tokens(8))


@pytest.mark.parametrize(("first", "end"), [(-1, 4), (4, 4), (0, 0), (0, 2.5)])
def test_a_wrong_range_of_tokens_is_refused(first, end):
    with pytest.raises(WrongCount, match="expected a whole number from"):
        Tokens(end, first)


def test_ranks_that_do_not_split_the_heads_are_refused():
    with pytest.raises(HeadsDoNotSplit, match="divides 4 heads or is a multiple of them, got 3"):
        Pool(KVLayout.LBHNC, (Cache("kv", 1, 4, 2),), 1, 1, Shard(0, 3))


def test_readers_of_a_copied_head_spread_over_the_ranks_that_hold_it():
    latent = (Cache("latent", 1, 1, 8),)

    ranks = [sources.readings(latent, 4, Shard(rank, 4))[0].source_rank for rank in range(4)]

    assert ranks == [0, 1, 2, 3]
