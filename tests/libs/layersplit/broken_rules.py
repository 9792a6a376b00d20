"""A job that breaks one rule of the split cache after another: each must show in the outputs."""

from layersplit import cache as cache_module
from layersplit.cache import Fetch, LayerSplitCache
from tests.libs.layersplit.overlaps import Gate, GatedLayers
from tests.libs.layersplit.prefills import CHUNKS, is_equal, replicated, split


def mutants(store, groups):
    """Whether each broken rule shows in the outputs."""
    expected, _ = replicated()
    found = {}
    for owner, name, broken in (
        (LayerSplitCache, "_receive", receives_at_the_beginning),
        (Fetch, "extend", forgets_new_rows),
        (LayerSplitCache, "fetch", takes_a_slot_that_is_read),
    ):
        stock = getattr(owner, name)
        setattr(owner, name, broken(stock))
        try:
            found[broken.__name__] = not is_equal(expected, split(groups)[0])
        finally:
            setattr(owner, name, stock)
    found["reads_without_waiting"] = reads_without_waiting(store, groups)
    return found


def receives_at_the_beginning(stock):
    """A chunk's rows overwrite the first chunk's."""

    def receive(cache, layer, first, end, kv, index):
        stock(cache, layer, 0, end - first, kv, index)

    return receive


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


def reads_without_waiting(store, groups):
    """Rows are handed out while their broadcast runs; owners delay it until others attended."""
    expected, _ = replicated(CHUNKS[:1])
    gate = Gate(store, "attended")
    stock, stock_rows = cache_module.broadcast, Fetch.rows
    cache_module.broadcast = gate.hold
    Fetch.rows = lambda fetch: fetch._kv[: fetch._end]
    try:
        outputs, _ = split(groups, CHUNKS[:1], "indexer", GatedLayers(gate))
    finally:
        cache_module.broadcast, Fetch.rows = stock, stock_rows
    return not is_equal(expected, outputs)
