"""One transfer between two engines: every rank's memory laid out slowly, then copied by plans.

`fault_of` says what is wrong with the plans of a case, or nothing. Contents are random, so a wrong
byte that happens to be right is rare: one in 256, and a wrong address moves many bytes.
"""

import random
from dataclasses import dataclass

import numpy as np

from kv_layout.caches import Cache, Shard
from kv_layout.copying import copy
from kv_layout.layouts import KVLayout
from kv_layout.pools import Pool
from kv_layout.transfers import Tokens, count_descriptors, plan, total_bytes
from tests.libs.kv_layout.memory import lay_out

PADDING = 0xA5
CAPACITY = 96
"""Tokens with contents; more than any block table of a case holds."""


@dataclass(frozen=True)
class Engine:
    """One side: what all its ranks have in common."""

    layout: KVLayout
    block_tokens: int
    ranks: int
    block_alignment: int = 1


@dataclass(frozen=True)
class Case:
    """A transfer of tokens `first` to `end`. seed: contents, block tables and base addresses."""

    caches: tuple[Cache, ...]
    source: Engine
    target: Engine
    first: int
    end: int
    whole_blocks: bool
    are_blocks_scattered: bool
    seed: int


def fault_of(case):
    """What is wrong with the plans of this case, in words; None if every byte is right."""
    pick = random.Random(case.seed)
    contents = np.random.default_rng(case.seed)
    logical = {
        cache.name: contents.integers(
            0, 256, (cache.layers, CAPACITY, cache.heads, cache.content_bytes), dtype=np.uint8
        )
        for cache in case.caches
    }
    tables = [table(side, case, pick) for side in (case.source, case.target)]
    sources = [
        pool_of(case.source, rank, case, tables[0], pick) for rank in range(case.source.ranks)
    ]
    memories = [source_memory(pool, tables[0], logical) for pool in sources]
    end = end_of(case)
    for rank in range(case.target.ranks):
        target = pool_of(case.target, rank, case, tables[1], pick)
        before = contents.integers(0, 256, target.size_bytes, dtype=np.uint8)
        expected = target_memory(target, tables[1], logical, before, (case.first, end))
        after, descriptors, scattered, moved, promised = before.copy(), 0, 0, 0, 0
        tokens = Tokens(case.end, case.first, case.whole_blocks)
        for pool, memory in zip(sources, memories, strict=True):
            copies = plan(pool, tables[0], target, tables[1], tokens)
            copy(copies, pool, memory, target, after)
            moved += copies.total_bytes
            promised += total_bytes(pool, target, tokens)
            descriptors += len(copies)
            scattered += count_descriptors(pool, target, tokens)
            if continues(copies):
                return f"rank {rank}: two descriptors continue each other on both sides"
        held = sum(
            cache.layers * heads_held(cache, case.target.ranks) * cache.content_bytes
            for cache in case.caches
        )
        wrong = np.flatnonzero(after != expected)
        if wrong.size:
            return f"rank {rank}: {wrong.size} wrong bytes, the first at {wrong[0]}"
        if not moved == promised == held * (end - case.first):
            return f"rank {rank}: {moved} bytes moved, {promised} promised, {held} per token held"
        if case.are_blocks_scattered and descriptors != scattered:
            return f"rank {rank}: {descriptors} descriptors, {scattered} counted"
        if descriptors > scattered:
            return f"rank {rank}: {descriptors} descriptors, more than {scattered} counted"
    return None


def heads_held(cache, ranks):
    """How many heads one rank holds."""
    return max(1, cache.heads // ranks)


def first_head(cache, rank, ranks):
    """The whole-model number of a rank's first head."""
    return rank * cache.heads // ranks


def end_of(case):
    """Where copying ends: the context's end, or the whole blocks that both sides have."""
    if not case.whole_blocks:
        return case.end
    rooms = [-(-case.end // n) * n for n in (case.source.block_tokens, case.target.block_tokens)]
    return min(rooms)


def table(side, case, pick):
    """A block table: shuffled, and scattered (every other block) where the case says so."""
    needed = -(-case.end // side.block_tokens)
    if case.are_blocks_scattered:
        blocks = [2 * place + 1 for place in range(needed)]
        pick.shuffle(blocks)
        return blocks
    begin = pick.randint(0, 2)
    return list(range(begin, begin + needed))


def pool_of(side, rank, case, blocks, pick):
    """A rank's pool with some blocks beyond the table, at some address."""
    base = side.block_alignment * pick.randint(0, 1000)
    shard = Shard(rank, side.ranks)
    count = max(blocks) + 2
    return Pool(
        side.layout, case.caches, count, side.block_tokens, shard, base, side.block_alignment
    )


def source_memory(pool, blocks, logical):
    """The source's bytes: the context in its blocks, other bytes elsewhere."""
    places = {block: place for place, block in enumerate(blocks)}

    def value(cache, layer, block, head, token):
        if block not in places:
            return bytes([0xEE] * cache.content_bytes)
        at = places[block] * pool.block_tokens + token
        whole = first_head(cache, pool.shard.rank, pool.shard.ranks) + head
        return logical[cache.name][layer, at, whole].tobytes()

    return lay_out(pool, held_by(pool), value, PADDING)


def target_memory(pool, blocks, logical, before, moved):
    """What the target's bytes must be: what they were, and the moved tokens in their blocks."""
    places = {block: place for place, block in enumerate(blocks)}

    def is_moved(cache, layer, block, head, token):
        place = places.get(block)
        at = -1 if place is None else place * pool.block_tokens + token
        return bytes([moved[0] <= at < moved[1]] * cache.content_bytes)

    def value(cache, layer, block, head, token):
        place = places.get(block, 0)
        at = min(place * pool.block_tokens + token, CAPACITY - 1)
        whole = first_head(cache, pool.shard.rank, pool.shard.ranks) + head
        return logical[cache.name][layer, at, whole].tobytes()

    mask = lay_out(pool, held_by(pool), is_moved, 0).astype(bool)
    return np.where(mask, lay_out(pool, held_by(pool), value, 0), before)


def held_by(pool):
    """How many heads of each cache the pool's rank holds."""
    return {cache.name: heads_held(cache, pool.shard.ranks) for cache in pool.caches}


def continues(copies):
    """Whether some descriptor goes on where another ends, on both sides."""
    ends = set(
        zip(
            (copies.source + copies.length).tolist(),
            (copies.target + copies.length).tolist(),
            strict=True,
        )
    )
    begins = zip(copies.source.tolist(), copies.target.tolist(), strict=True)
    return any(begin in ends for begin in begins)
