"""Jobs in which something goes wrong: input that is refused, layers that fail, a silent rank."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist

from layersplit.cache import LayerSplitCache
from layersplit.errors import LayerSplitError
from layersplit.groups import CacheGroups, make_groups
from layersplit.rows import CacheShape, tokens_of
from tests.libs.layersplit.prefills import CHUNKS, SHAPE, TIMEOUT, outputs_of
from tests.libs.layersplit.toy_layers import ToyLayers

SHORT_TIMEOUT_S = 2
"""A timeout that is let run out; the ranks come to it together, so making groups fits into it."""


def refusals(store, groups):
    """What the cache says to wrong input, on every rank alike; the class and the message."""
    cache = LayerSplitCache(SHAPE, groups)
    count = len(tokens_of(0, 8, cache.rank, cache.ranks))
    kv = torch.zeros(count, 24, dtype=torch.uint8)
    index = torch.zeros(count, 8, dtype=torch.uint8)
    rows_of_layer_3 = torch.zeros(count, 32, dtype=torch.uint8), index

    def released():
        fetch = cache.fetch(0, 0)
        fetch.release()
        fetch.rows()

    def three_layers():
        held = [cache.fetch(0, 0), cache.fetch(1, 0)]
        try:
            cache.fetch(2, 0)
        finally:
            for fetch in held:
                fetch.release()

    def released_twice():
        old = cache.fetch(0, 0)
        old.release()
        held = [cache.fetch(0, 0), cache.fetch(1, 0)]
        old.release()
        try:
            held.append(cache.fetch(2, 0))
        finally:
            for fetch in held:
                fetch.release()

    def never_appended():
        fetch = cache.fetch(0, 0)
        try:
            fetch.extend(8)
        finally:
            fetch.release()

    def appended_again():
        cache.append(3, 0, 8, *rows_of_layer_3)
        cache.append(3, 0, 8, *rows_of_layer_3)

    world = dist.get_world_size()
    alone = make_groups([[rank] for rank in range(world)], TIMEOUT).append
    attempts = {
        "dtype": lambda: cache.append(0, 0, 8, kv.to(torch.int8), index),
        "shape": lambda: cache.append(0, 0, 8, kv[:, :23], index),
        "no_index": lambda: cache.append(0, 0, 8, kv, None),
        "needless_index": lambda: cache.append(2, 0, 8, kv, index),
        "layer": lambda: cache.append(6, 0, 8, kv, index),
        "tokens": lambda: cache.append(0, 60, 65, kv, index),
        "fetch_tokens": lambda: cache.fetch(0, 65),
        "released": released,
        "three_layers": three_layers,
        "released_twice": released_twice,
        "gap": lambda: cache.append(0, 8, 16, kv, index),
        "appended_again": appended_again,
        "never_appended": lambda: cache.fetch(0, 8),
        "extended_beyond": never_appended,
        "ranks_disagree": lambda: LayerSplitCache(
            CacheShape(SHAPE.layers, 64 + dist.get_rank()), groups
        ),
        "other_ranks": lambda: CacheGroups(dist.group.WORLD, groups.index, alone),
        "no_member": lambda: CacheGroups(*[dist.GroupMember.NON_GROUP_MEMBER] * 3),
        "in_two_parts": lambda: make_groups([range(world), [0]], TIMEOUT),
    }
    found = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except LayerSplitError as error:
            found[name] = [type(error).__name__, str(error)]
    return found


def failures(store, groups):
    """The slots that are free after a layer failed in a second chunk, by step and overlap."""
    free = {}
    for step in ("project", "select", "attend"):
        for overlap in ("none", "indexer", "next_layer"):
            cache = LayerSplitCache(SHAPE, groups)
            outputs_of(cache, ToyLayers(SHAPE), CHUNKS[:1], overlap)
            try:
                outputs_of(cache, FailingLayers(step), CHUNKS[1:2], overlap)
            except ArithmeticError:
                free[f"{step}/{overlap}"] = [len(cache._free_slots), len(cache._held)]
    return free


class FailingLayers(ToyLayers):
    """The toy, which fails at one step of layer 1 on every rank."""

    def __init__(self, step):
        super().__init__(SHAPE)
        setattr(self, step, self.fail_at_layer_1(getattr(self, step)))

    def fail_at_layer_1(self, stock):
        def step(layer, *arguments):
            if layer == 1:
                raise ArithmeticError
            return stock(layer, *arguments)

        return step


def dead_rank(store, groups):
    """How long the owner of layer 0 waits for rows that nobody sends, and what it raises."""
    short = make_groups([range(dist.get_world_size())], timedelta(seconds=SHORT_TIMEOUT_S))
    cache = LayerSplitCache(SHAPE, short)
    if cache.rank != 0:
        store.wait(["rank 0 has given up"], TIMEOUT)
        return None
    kv = torch.zeros(len(tokens_of(0, 8, 0, cache.ranks)), 24, dtype=torch.uint8)
    began = time.monotonic()
    try:
        cache.append(0, 0, 8, kv, kv[:, :8].contiguous())
    except RuntimeError as error:
        return {"waited_s": time.monotonic() - began, "error": str(error)}
    finally:
        store.set("rank 0 has given up", "1")
