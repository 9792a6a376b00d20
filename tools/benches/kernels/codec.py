"""The row codec and attention on the CPU: equality with golden, and one core's rates.

Every rate is the best of some repeats in one thread on one core, in that thread's CPU time, and
what it is compared with is measured in turn with it: other load on the machine slows both and is
not counted.
"""

import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from benches.kernels import rows as cases
from benches.report import Figure
from nvfp4 import golden, native, row
from nvfp4.native import Chosen, Execution, Isa
from nvfp4.native.library import load
from tests.mutants import nvfp4_rows

CHUNK = 1024
"""Rows at a time: golden's intermediate tensors then stay in the caches."""
SEARCHED_SHARE = 100
"""The scale search is compared on one chunk of this many: golden takes ten times as long for it."""
OTHERS_SHARE = 8
"""The slower instruction sets, likewise."""
PROGRESS_CHUNKS = 1000
RATE_ROWS = 32768
"""87 MB packed and unpacked, which no L2 holds."""
HEADS, SLOTS, CACHE_ROWS = 16, 2048, 8192
"""64 heads over four GPUs, the sparse indexer's choice, and rows to choose from."""
SCALE = 1 / 24
COPY_SHARE_TARGET, SPEED_TARGET, ERROR_TARGET = 0.6, 100.0, 1e-5


def figures(equal_rows: int, repeats: int) -> list[Figure]:
    """All of them, in one thread on one core; `equal_rows` random rows are compared with golden.

    A second thread of torch's would gain nothing on chunks of this size and wait for the first.
    """
    with _one_core():
        return [
            *equality(equal_rows),
            edge_equality(),
            exact_types(),
            attention_error(),
            mutant_figure(),
            *codec_rates(repeats),
            *attention_rates(repeats),
        ]


def equality(count: int) -> list[Figure]:
    """Random rows that some path quantises or dequantises unlike golden, of `count`.

    A row that is wrong on several paths counts once.
    """
    generator = torch.Generator().manual_seed(1)
    isas = load().supported
    compared = {"amax": 0, "mse": 0}
    on_all_paths = {"amax": 0, "mse": 0}
    wrong = {"amax": 0, "mse": 0, "dequantised": 0}
    chunks = -(-count // CHUNK)
    for number in range(chunks):
        if number % PROGRESS_CHUNKS == 0:
            print(f"compared {number / chunks:.0%} of the rows", file=sys.stderr, flush=True)
        values = cases.random_values(min(CHUNK, count - number * CHUNK), generator)
        paths = isas if number % OTHERS_SHARE == 0 else isas[-1:]
        for scales in ("amax", "mse") if number % SEARCHED_SHARE == 0 else ("amax",):
            want = golden.quantise(values, scales)
            compared[scales] += len(values)
            on_all_paths[scales] += len(values) if paths == isas else 0
            wrong[scales] += _rows_unlike(
                want, [native.quantise(values, scales, execution=Execution(isa)) for isa in paths]
            )
        unpacked = golden.dequantise(want).view(torch.int32)
        got = [native.dequantise(want, execution=Execution(isa)) for isa in paths]
        wrong["dequantised"] += _rows_unlike(unpacked, [each.view(torch.int32) for each in got])
    notes = {scales: _paths_note(isas, on_all_paths[scales]) for scales in compared}
    return [
        _none_wrong("rows_quantised_unlike_golden", wrong["amax"], compared["amax"], notes["amax"]),
        _none_wrong("rows_searched_unlike_golden", wrong["mse"], compared["mse"], notes["mse"]),
        _none_wrong(
            "rows_dequantised_unlike_golden", wrong["dequantised"], compared["amax"], notes["amax"]
        ),
    ]


def _paths_note(isas: Sequence[Isa], on_all_paths: int) -> str:
    """The path that all rows were compared on, and how many were on the others too."""
    *others, best = (isa.value for isa in isas)
    rest = f"; {on_all_paths:,} of them with {', '.join(others)} too" if others else ""
    return f"with {best}{rest}"


def _rows_unlike(want: torch.Tensor, each: Sequence[torch.Tensor]) -> int:
    """Rows that at least one of the results has otherwise."""
    return int(torch.stack([(got != want).any(dim=1) for got in each]).any(dim=0).sum())


def edge_equality() -> Figure:
    """Edge rows that some path packs or unpacks unlike golden."""
    wrong = []
    edges = cases.edges()
    for name, values in edges.items():
        for scales in ("amax", "mse"):
            want = golden.quantise(values, scales)
            unpacked = golden.dequantise(want).view(torch.int32)
            for isa in load().supported:
                got = native.quantise(values, scales, execution=Execution(isa))
                back = native.dequantise(want, execution=Execution(isa)).view(torch.int32)
                if not (torch.equal(got, want) and torch.equal(back, unpacked)):
                    wrong.append(f"{name} ({isa.value})")
    note = f"of {len(edges)} {', '.join(wrong[:3])}"
    return Figure("edge_rows_unlike_golden", len(wrong), "rows", "= 0", not wrong, note)


def exact_types() -> Figure:
    """Products of scale byte and code, and rope bytes, that a result type does not hold exactly."""
    packed = cases.every_product()
    exact = golden.dequantise(packed)
    wrong = 0
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        got = native.dequantise(packed, dtype).float()
        wrong += int(((got != exact) & ~(got.isnan() & exact.isnan())).sum())
    return Figure(
        "values_not_exact", wrong, "values", "= 0", wrong == 0, "256 x 16 + 256 codes, 3 types"
    )


def attention_error() -> Figure:
    """The largest relative L2 error of a head's output against float64, on any path."""
    torch.manual_seed(2)
    packed = native.quantise(torch.randn(CACHE_ROWS, row.WIDTH))
    worst, where = 0.0, ""
    for heads in (8, 16, 40, 128):
        indices = torch.randint(0, CACHE_ROWS, (3, SLOTS), dtype=torch.int32)
        indices[torch.rand(indices.shape) < 0.1] = -1
        counts = torch.tensor([SLOTS, 33, 1000], dtype=torch.int32)
        chosen, sinks = Chosen(indices, counts), torch.randn(heads)
        for dtype in (torch.float32, torch.bfloat16):
            queries = torch.randn(3, heads, row.WIDTH).to(dtype)
            want = golden.sparse_mla(packed, queries, chosen, SCALE, sinks).out
            for isa in load().supported:
                execution = Execution(isa)
                got = native.sparse_mla(packed, queries, chosen, SCALE, sinks, execution).out
                apart = (got - want).norm(dim=-1) / want.norm(dim=-1)
                error = float(apart.where(~apart.isnan(), math.inf).max())
                if error > worst:
                    worst, where = error, f"{isa.value}, {heads} heads, {dtype} queries"
    return Figure("attention_error", worst, "", f"< {ERROR_TARGET:g}", worst < ERROR_TARGET, where)


def mutant_figure() -> Figure:
    """Native code with one rule broken that the comparison with golden catches, of all there is."""
    mutants = nvfp4_rows.runnable()
    with tempfile.TemporaryDirectory() as folder:
        survivors = [each.name for each in mutants if not nvfp4_rows.is_caught(each, Path(folder))]
    return Figure(
        "row_mutants_caught",
        len(mutants) - len(survivors),
        "",
        f"= {len(mutants)}",
        not survivors,
        ", ".join(survivors),
    )


def codec_rates(repeats: int) -> list[Figure]:
    """Quantise and dequantise; the latter beside a copy of as many bytes."""
    values = torch.randn(RATE_ROWS, row.WIDTH)
    packed = native.quantise(values)
    out, back = torch.empty_like(values), torch.empty_like(packed)
    halves = torch.empty(RATE_ROWS, row.WIDTH, dtype=torch.bfloat16)
    moved = packed.nbytes + out.nbytes
    source, target = torch.ones(2, moved // 2, dtype=torch.uint8)
    one = Execution(threads=1)
    seconds = _best_of(
        repeats,
        copy=lambda: target.copy_(source),
        dequantise=lambda: native.dequantise(packed, out=out, execution=one),
        dequantise_bfloat16=lambda: native.dequantise(packed, torch.bfloat16, halves, one),
        quantise=lambda: native.quantise(values, "amax", back, one),
        quantise_search=lambda: native.quantise(values, "mse", back, one),
    )
    share = seconds["copy"] / seconds["dequantise"]
    rates = [
        Figure(f"{name}_rate", round(RATE_ROWS / seconds[name] / 1e6, 3), "Mrow/s", "", True)
        for name in seconds
        if name != "copy"
    ]
    copied = moved / seconds["copy"] / 1e9
    note = f"of {copied:.1f} GB/s read and written by copy_, {moved / 1e6:.0f} MB each"
    is_met = share >= COPY_SHARE_TARGET
    goal = f">= {COPY_SHARE_TARGET}"
    return [*rates, Figure("dequantise_share_of_copy", round(share, 2), "", goal, is_met, note)]


def attention_rates(repeats: int) -> list[Figure]:
    """One token's attention over SLOTS rows: each path, golden, and torch in float32."""
    torch.manual_seed(3)
    packed = native.quantise(torch.randn(CACHE_ROWS, row.WIDTH))
    queries = torch.randn(1, HEADS, row.WIDTH).bfloat16()
    chosen = Chosen(torch.randint(0, CACHE_ROWS, (1, SLOTS), dtype=torch.int32))

    def path(isa: Isa) -> Callable[[], object]:
        execution = Execution(isa, threads=1)
        return lambda: native.sparse_mla(packed, queries, chosen, SCALE, None, execution)

    paths = {isa.value: path(isa) for isa in load().supported}
    seconds = _best_of(
        repeats,
        golden=lambda: golden.sparse_mla(packed, queries, chosen, SCALE),
        torch_float32=lambda: attend_in_float32(packed, queries, chosen.indices[0]),
        **paths,
    )
    best = load().supported[-1].value
    ratio, plain_ratio = (seconds[name] / seconds[best] for name in ("golden", "torch_float32"))
    times = [
        Figure(f"attention_{name}", round(1e3 * each, 3), "ms/token", "", True)
        for name, each in seconds.items()
    ]
    met = ratio >= SPEED_TARGET
    note = f"golden in float64 over {best}; torch in float32 over it: {plain_ratio:.0f}"
    return [
        *times,
        Figure("attention_speed", round(ratio, 1), "x torch", f">= {SPEED_TARGET:g}", met, note),
    ]


def attend_in_float32(
    packed: torch.Tensor, queries: torch.Tensor, indices: torch.Tensor
) -> torch.Tensor:
    """What one writes in torch for speed: unpack the chosen rows, then two float32 products."""
    keys = golden.dequantise(packed[indices.long()])
    weights = torch.softmax(queries[0].float() @ keys.T * SCALE, dim=-1)
    return weights @ keys[:, : row.LATENT]


def _none_wrong(name: str, wrong: int, compared: int, note: str) -> Figure:
    return Figure(name, wrong, "rows", "= 0", wrong == 0, f"of {compared:,}, {note}")


def _best_of(repeats: int, **calls: Callable[[], object]) -> dict[str, float]:
    """CPU seconds of each call: all are made in turn, the least of each counts.

    Once untimed before: no call pays for what the one before it put into the caches.
    """
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(repeats):
        for name, call in calls.items():
            call()
            started = time.thread_time()
            call()
            best[name] = min(best[name], time.thread_time() - started)
    return best


@contextmanager
def _one_core() -> Iterator[None]:
    """One thread, held on the core it is on."""
    threads, cores = torch.get_num_threads(), os.sched_getaffinity(0)
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)
