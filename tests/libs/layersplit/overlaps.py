"""Jobs that prove what travels meanwhile: rows are held back, or waited for, until a step."""

from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist

from layersplit import cache as cache_module
from layersplit.cache import LayerSplitCache
from tests.libs.layersplit.prefills import CHUNKS, SHAPE, is_equal, outputs_of, replicated, split
from tests.libs.layersplit.toy_layers import ToyLayers

GATE_S = 8
"""How long a rank waits for what may not happen; far more than a layer of the toy takes."""


def indexer_overlap(store, groups):
    """Owners hold each layer's KV back until every other rank has selected."""
    expected, _ = replicated(CHUNKS[:1])
    stock = cache_module.broadcast
    gate = Gate(store, "selected")
    cache_module.broadcast = gate.hold
    try:
        outputs, _ = split(groups, CHUNKS[:1], "indexer", GatedLayers(gate))
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


def next_layer_overlap(store, groups):
    """Whether the next layer's cached rows are here before a layer has attended, by overlap.

    `indexer` fetches no layer ahead, which must show.
    """
    expected, _ = replicated(CHUNKS[:2])
    found = {}
    for overlap in ("next_layer", "indexer"):
        layers = ToyLayers(SHAPE)
        with followed_broadcasts() as started:
            cache = LayerSplitCache(SHAPE, groups)
            outputs = outputs_of(cache, layers, CHUNKS[:1], overlap)
            ahead = LayersThatWaitForTheNext(started)
            outputs += outputs_of(cache, ahead, CHUNKS[1:2], overlap)
        found[overlap] = {"is_equal": is_equal(expected, outputs), "in_time": ahead.in_time}
    return found


@contextmanager
def followed_broadcasts():
    """Meanwhile, the works of each layer's broadcasts that this rank has started, by layer."""
    started = {layer: [] for layer in range(len(SHAPE.layers))}
    stock = {name: getattr(LayerSplitCache, name) for name in ("send_index", "send_kv")}

    def followed(send):
        def broadcast(cache, layer, rows):
            work = send(cache, layer, rows)
            started[layer].append(work)
            return work

        return broadcast

    for name, send in stock.items():
        setattr(LayerSplitCache, name, followed(send))
    try:
        yield started
    finally:
        for name, send in stock.items():
            setattr(LayerSplitCache, name, send)


class LayersThatWaitForTheNext(ToyLayers):
    """The toy, whose attention does not end before the next layer's cached rows are here."""

    def __init__(self, started):
        super().__init__(SHAPE)
        self.started = started
        self.seen = {layer: len(works) for layer, works in started.items()}
        self.in_time = []

    def attend(self, layer, hidden, chosen, rows):
        hidden = super().attend(layer, hidden, chosen, rows)
        if layer + 1 < len(SHAPE.layers):
            works = self.started[layer + 1][self.seen[layer + 1] :]
            for work in works:
                work.wait(timedelta(seconds=GATE_S))
            self.in_time.append(bool(works))
        return hidden
