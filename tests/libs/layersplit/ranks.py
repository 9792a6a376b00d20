"""Runs the jobs below on N ranks over gloo: `python -m tests.libs.layersplit.ranks N FOLDER`.

One process imports torch and forks the ranks. Each writes what every job found to
FOLDER/rank<r>.json.
"""

import json
import os
import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from layersplit import cache as cache_module
from layersplit.cache import Fetch, LayerSplitCache
from layersplit.errors import LayerSplitError, RanksDisagree
from layersplit.prefill import prefill_chunk
from layersplit.replicated import ReplicatedCache
from layersplit.rows import CacheShape, LayerRows, tokens_of
from tests.libs.layersplit.toy_layers import WIDTH, ToyLayers

SHAPE = CacheShape(
    (
        LayerRows(24, 8),
        LayerRows(24, 8),
        LayerRows(24, 0),
        LayerRows(32, 8),
        LayerRows(24, 0),
        LayerRows(24, 12),
    ),
    64,
)
CHUNKS = (range(0, 37), range(37, 58), range(58, 59))  # the last leaves ranks without a token
GATE_S = 8
"""How long an owner waits for what may not happen; far more than a layer of the toy takes."""


def outputs_of(cache, layers, chunks, overlap="next_layer"):
    """The hidden states of this rank's tokens after each chunk."""
    results = []
    for chunk in chunks:
        mine = tokens_of(chunk.start, chunk.stop, cache.rank, cache.ranks)
        make = torch.Generator().manual_seed(11)
        prompt = torch.randn(SHAPE.tokens, WIDTH, generator=make)
        layers.positions = torch.arange(mine.start, mine.stop)
        hidden = prompt[mine.start : mine.stop]
        results.append(prefill_chunk(layers, cache, hidden, chunk, overlap))
    return results


def is_equal(first, second):
    """Whether every bit agrees, on every rank."""
    mine = all(
        torch.equal(a.view(torch.int32), b.view(torch.int32))
        for a, b in zip(first, second, strict=True)
    )
    verdict = torch.tensor([int(mine)])
    dist.all_reduce(verdict, op=dist.ReduceOp.MIN)
    return bool(verdict)


def replicated(chunks=CHUNKS):
    """Outputs and traffic of the reference."""
    cache = ReplicatedCache(SHAPE, dist.group.WORLD)
    return outputs_of(cache, ToyLayers(SHAPE), chunks), asdict(cache.traffic)


def split(chunks=CHUNKS, overlap="next_layer", layers=None):
    """Outputs and traffic of the split cache."""
    cache = LayerSplitCache(SHAPE, dist.group.WORLD)
    outputs = outputs_of(cache, layers or ToyLayers(SHAPE), chunks, overlap)
    return outputs, {**asdict(cache.traffic), "owners": cache.owners}


def equality(store):
    """Every way to overlap against the reference."""
    expected, traffic = replicated()
    found = {"replicated": traffic}
    for overlap in ("none", "indexer", "next_layer"):
        outputs, traffic = split(overlap=overlap)
        found[overlap] = {"is_equal": is_equal(expected, outputs), **traffic}
    return found


def indexer_overlap(store):
    """Owners hold each layer's KV back until every other rank has selected."""
    expected, _ = replicated(CHUNKS[:1])
    stock = cache_module.broadcast
    gate = Gate(store, "selected")
    cache_module.broadcast = gate.hold
    try:
        outputs, _ = split(CHUNKS[:1], "indexer", GatedLayers(gate))
    finally:
        cache_module.broadcast = stock
    return {"is_equal": is_equal(expected, outputs), "was_in_time": gate.was_in_time}


class Gate:
    """Holds this rank's KV broadcasts back until the others have reported a step of that layer."""

    def __init__(self, store, step):
        self.store, self.step = store, step
        self.layer = 0
        self.was_in_time = True

    def hold(self, rows, source, group):
        """As `broadcast`. KV rows are told from indexer rows by their width."""
        is_kv = rows.shape[1] == SHAPE.layers[self.layer].kv_bytes
        if is_kv and source == dist.get_rank():
            others = [rank for rank in range(dist.get_world_size()) if rank != source]
            keys = [f"{self.step}/{self.layer}/{rank}" for rank in others]
            try:
                self.store.wait(keys, timedelta(seconds=GATE_S))
            except RuntimeError:
                self.was_in_time = False
        return dist.broadcast(rows, source, group=group, async_op=True)

    def report(self, step):
        """Tells the owners where this rank is."""
        if step == self.step:
            self.store.set(f"{step}/{self.layer}/{dist.get_rank()}", "1")


class GatedLayers(ToyLayers):
    """The toy, which reports that it has selected or attended."""

    def __init__(self, gate):
        super().__init__(SHAPE)
        self.gate = gate

    def select(self, layer, hidden, index):
        chosen = super().select(layer, hidden, index)
        self.gate.report("selected")
        return chosen

    def attend(self, layer, hidden, chosen, rows):
        hidden = super().attend(layer, hidden, chosen, rows)
        self.gate.report("attended")
        self.gate.layer = layer + 1
        return hidden


def mutants(store):
    """Whether each broken rule shows in the outputs."""
    expected, _ = replicated()
    found = {}
    for owner, name, broken in (
        (LayerSplitCache, "append", appends_at_the_beginning),
        (Fetch, "extend", forgets_new_rows),
        (LayerSplitCache, "fetch", takes_a_slot_that_is_read),
    ):
        stock = getattr(owner, name)
        setattr(owner, name, broken(stock))
        try:
            found[broken.__name__] = not is_equal(expected, split()[0])
        finally:
            setattr(owner, name, stock)
    found["reads_without_waiting"] = reads_without_waiting(store)
    return found


def appends_at_the_beginning(stock):
    """A chunk's rows overwrite the first chunk's."""

    def append(cache, layer, first, end, kv, index):
        stock(cache, layer, 0, end - first, kv, index)

    return append


def forgets_new_rows(stock):
    """Only the rows cached before the chunk are broadcast, the chunk's own are not."""

    def extend(fetch, end):
        is_first = fetch._end == 0
        if is_first or fetch._cache.owners[fetch.layer] == fetch._cache.rank:
            before, fetch._end = fetch._end, end
            if is_first and before != end:
                fetch._end = before
                stock(fetch, end)
        fetch._end = end

    return extend


def takes_a_slot_that_is_read(stock):
    """Both slots are one: the next layer arrives over the one that is read."""

    def fetch(cache, layer, end):
        cache._free_slots = cache._free_slots[:1] * 2
        taken = stock(cache, layer, end)
        taken.rows()  # it has arrived before the layer before is read: no matter of luck
        return taken

    return fetch


def reads_without_waiting(store):
    """Rows are handed out while their broadcast runs; owners delay it until others attended."""
    expected, _ = replicated(CHUNKS[:1])
    gate = Gate(store, "attended")
    stock, stock_rows = cache_module.broadcast, Fetch.rows
    cache_module.broadcast = gate.hold
    Fetch.rows = lambda fetch: fetch._kv[: fetch._end]
    try:
        outputs, _ = split(CHUNKS[:1], "indexer", GatedLayers(gate))
    finally:
        cache_module.broadcast, Fetch.rows = stock, stock_rows
    return not is_equal(expected, outputs)


def refusals(store):
    """What the cache says to wrong input, on every rank alike; the class and the message."""
    cache = LayerSplitCache(SHAPE, dist.group.WORLD)
    count = len(tokens_of(0, 8, cache.rank, cache.ranks))
    kv = torch.zeros(count, 24, dtype=torch.uint8)
    index = torch.zeros(count, 8, dtype=torch.uint8)

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
        "ranks_disagree": lambda: LayerSplitCache(
            CacheShape(SHAPE.layers, 64 + dist.get_rank()), dist.group.WORLD
        ),
    }
    found = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except LayerSplitError as error:
            found[name] = [type(error).__name__, str(error)]
    assert issubclass(RanksDisagree, LayerSplitError)
    return found


JOBS = (equality, indexer_overlap, mutants, refusals)


def run_rank(rank, ranks, folder):
    """All jobs on one rank."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=60),
    )
    results = {}
    for job in JOBS:
        store = dist.PrefixStore(job.__name__, dist.FileStore(f"{folder}/steps", ranks))
        results[job.__name__] = job(store)
    dist.barrier()
    (folder / f"rank{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


def main(ranks, folder):
    """Forks the ranks and waits; fails with the first that fails."""
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            run_rank(rank, ranks, folder)
            os._exit(0)
        children.append(child)
    failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
