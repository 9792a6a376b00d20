"""The toy prompt in chunks through either cache, and whether two ways agree on every rank."""

from dataclasses import asdict
from datetime import timedelta

import torch
import torch.distributed as dist

from layersplit.cache import LayerSplitCache
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
TIMEOUT = timedelta(seconds=60)


def outputs_of(cache, layers, chunks, overlap="next_layer", seed=11):
    """The hidden states of this rank's tokens after each chunk."""
    results = []
    for chunk in chunks:
        mine = tokens_of(chunk.start, chunk.stop, cache.rank, cache.ranks)
        make = torch.Generator().manual_seed(seed)
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


def split(groups, chunks=CHUNKS, overlap="next_layer", layers=None):
    """Outputs and traffic of the split cache."""
    cache = LayerSplitCache(SHAPE, groups)
    outputs = outputs_of(cache, layers or ToyLayers(SHAPE), chunks, overlap)
    return outputs, {**asdict(cache.traffic), "owners": cache.owners}
