"""One chunk of a prompt through all layers, over a split or a replicated cache.

What waits for what (LayerSplit of GLM-5's serving; SGLang's `--enable-dsa-cache-layer-split`):
the indexer waits for the indexer rows, a layer's attention for its KV rows, and nothing else waits.
The rows that were cached before this chunk are final, so those of the next layer can travel during
this one; this chunk's rows exist only after the layer before, and follow in a second, short
broadcast.
"""

from contextlib import ExitStack
from typing import Any, Literal, Protocol

from layersplit.cache import Fetch, LayerSplitCache
from layersplit.replicated import Held, ReplicatedCache

Overlap = Literal["none", "indexer", "next_layer"]
"""none: KV is waited for at once. indexer: it travels while the indexer selects. next_layer: also
the next layer's cached rows travel meanwhile."""


class Layers(Protocol):
    """A rank's part of the model; hidden states are those of the rank's own tokens."""

    def project(self, layer: int, hidden: Any) -> tuple[Any, Any]:
        """The KV and indexer rows of the rank's tokens, as `append` takes them."""

    def select(self, layer: int, hidden: Any, index: Any) -> Any:
        """Which rows each token attends to; index is None where the layer has no indexer."""

    def attend(self, layer: int, hidden: Any, chosen: Any, rows: Any) -> Any:
        """The hidden states after the layer."""


def prefill_chunk(
    layers: Layers,
    cache: LayerSplitCache | ReplicatedCache,
    hidden: Any,
    chunk: range,
    overlap: Overlap = "next_layer",
) -> Any:
    """Runs the chunk's tokens, this rank's share in `hidden`, through every layer.

    `chunk`: the tokens of all ranks; those before chunk.start are cached. Returns the hidden states
    of the rank's tokens. When a layer raises, no fetch stays held; but some layers then have the
    chunk's rows and some have not, so the request starts again with another cache.
    """
    count = len(cache.shape.layers)
    with ExitStack() as held:

        def fetched(layer: int) -> Fetch | Held:
            fetch = cache.fetch(layer, chunk.start)
            held.callback(fetch.release)
            return fetch

        fetch = fetched(0)
        for layer in range(count):
            kv, index = layers.project(layer, hidden)
            cache.append(layer, chunk.start, chunk.stop, kv, index)
            fetch.extend(chunk.stop)
            is_last = layer + 1 == count
            following = None
            if overlap == "next_layer" and not is_last:
                following = fetched(layer + 1)
            if overlap == "none":
                fetch.rows()
            chosen = layers.select(layer, hidden, fetch.index())
            hidden = layers.attend(layer, hidden, chosen, fetch.rows())
            fetch.release()
            if not is_last:
                fetch = following or fetched(layer + 1)
    return hidden
