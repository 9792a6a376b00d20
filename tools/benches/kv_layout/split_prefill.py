"""LayerSplit over gloo: bytes that a rank stores and receives, and the three ways to overlap.

Rows have GLM-5's sizes (352 B of NVFP4 and a 132 B indexer row), contents are random, the layers do
little else than read every indexer row and gather the chosen KV rows. On one host the ranks share
its cores with the transport, so times say what overlap costs, not what it gains.
"""

import json
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from benches.report import Figure, spread

LAYERS, CONTEXT, CHUNK, TOP = 8, 8192, 1024, 512
KV_BYTES, INDEX_BYTES = 352, 132
TIMEOUT = timedelta(minutes=5)
"""For one rank to wait for another's rows: far more than a layer takes beside other work."""
OVERLAPS = ("none", "indexer", "next_layer")
REPEATS = 3


@dataclass
class ReadingLayers:
    """One rank's layers for one chunk: the output depends on every byte of the chosen rows."""

    tokens: range

    def project(self, layer: int, hidden: Any) -> tuple[Any, Any]:
        """Random rows, others for other tokens, layers and hidden states."""
        import torch

        seed = hash((layer, self.tokens.start, hidden.sum().item()))
        make = torch.Generator().manual_seed(seed)
        shapes = ((len(self.tokens), KV_BYTES), (len(self.tokens), INDEX_BYTES))
        kv, index = (
            torch.randint(0, 256, shape, dtype=torch.uint8, generator=make) for shape in shapes
        )
        return kv, index

    def select(self, layer: int, hidden: Any, index: Any) -> Any:  # noqa: ARG002
        """The TOP rows by a score over the indexer rows."""
        return (index.float() @ hidden[:INDEX_BYTES]).topk(TOP).indices

    def attend(self, layer: int, hidden: Any, chosen: Any, rows: Any) -> Any:  # noqa: ARG002
        """Mixes the chosen rows into the hidden states."""
        return (hidden + rows[chosen].float().mean(0)) / 2


def measure(ranks: int) -> list[Figure]:
    """One process per rank; rank 0's figures."""
    import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_run_rank, args=(ranks, folder), nprocs=ranks)
        found: dict[str, Any] = json.loads((Path(folder) / "found.json").read_text())
    return _figures(ranks, found)


def _run_rank(rank: int, ranks: int, folder: str) -> None:
    import torch
    import torch.distributed as dist

    from layersplit.cache import LayerSplitCache
    from layersplit.groups import make_groups
    from layersplit.replicated import ReplicatedCache
    from layersplit.rows import CacheShape, LayerRows

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks
    )
    shape = CacheShape((LayerRows(KV_BYTES, INDEX_BYTES),) * LAYERS, CONTEXT)
    groups = make_groups([range(ranks)], TIMEOUT)
    assert groups is not None
    reference = ReplicatedCache(shape, groups.append)
    expected, _ = _prefill(reference, "none")
    seconds: dict[str, list[float]] = {overlap: [] for overlap in OVERLAPS}
    report: dict[str, Any] = {}
    is_equal = True
    for number in range(REPEATS):
        # Whoever goes later finds warmer caches: take turns.
        for overlap in OVERLAPS if number % 2 else OVERLAPS[::-1]:
            cache = LayerSplitCache(shape, groups)
            outputs, elapsed = _prefill(cache, overlap)
            seconds[overlap].append(elapsed)
            report = {
                "stored": cache.traffic.stored,
                "slots": cache.traffic.slots,
                "received": cache.traffic.received,
            }
            # After the traffic was read: comparing the rows fetches every layer once more.
            is_equal &= _has_same_rows(cache, reference)
            is_equal &= torch.equal(outputs, expected)
    verdict = torch.tensor([int(is_equal)])
    dist.all_reduce(verdict, op=dist.ReduceOp.MIN)
    if rank == 0:
        replicated = reference.traffic.stored
        report |= {"is_equal": bool(verdict), "replicated": replicated, "seconds": seconds}
        (Path(folder) / "found.json").write_text(json.dumps(report))
    dist.barrier()
    dist.destroy_process_group()


def _prefill(cache: Any, overlap: Any) -> tuple[Any, float]:
    """The whole context in chunks: the last hidden states and how long it took."""
    import torch
    import torch.distributed as dist

    from layersplit.prefill import prefill_chunk
    from layersplit.rows import tokens_of

    hidden = torch.ones(KV_BYTES)
    dist.barrier()
    started = time.perf_counter()
    for first in range(0, CONTEXT, CHUNK):
        chunk = range(first, first + CHUNK)
        layers = ReadingLayers(tokens_of(chunk.start, chunk.stop, cache.rank, cache.ranks))
        hidden = prefill_chunk(layers, cache, hidden, chunk, overlap)
    return hidden, time.perf_counter() - started


def _has_same_rows(cache: Any, reference: Any) -> bool:
    """Whether every row that the split cache hands out is the replicated cache's, byte by byte."""
    import torch

    is_same = True
    for layer in range(LAYERS):
        split, whole = cache.fetch(layer, CONTEXT), reference.fetch(layer, CONTEXT)
        is_same &= torch.equal(split.rows(), whole.rows())
        is_same &= torch.equal(split.index(), whole.index())
        split.release()
    return is_same


def _figures(ranks: int, found: dict[str, Any]) -> list[Figure]:
    name = f"LayerSplit, {ranks} ranks"
    whole, stored, slots = found["replicated"], found["stored"], found["slots"]
    figures = [
        Figure(f"{name}: outputs and rows bit-equal to replicated KV", int(found["is_equal"]), "",
               "= 1", found["is_equal"]),
        Figure(f"{name}: stored / replicated", stored / whole, "x", f"= 1/{ranks}",
               stored * ranks == whole,
               f"{stored / 1e6:.1f} of {whole / 1e6:.1f} MB, and {slots / 1e6:.1f} MB in slots"),
        Figure(f"{name}: received by a rank", found["received"] / 1e6, "MB", "any", True),
    ]  # fmt: skip
    for overlap, seconds in found["seconds"].items():
        middle = statistics.median(seconds)
        figures.append(
            Figure(f"{name}: overlap {overlap}", middle, "s", "any", True, spread(seconds))
        )
    return figures
