"""The rows' codec and attention on this machine's CPU: `golden`'s signatures, bit-equal where it is
exact.

Every argument is checked before a pointer leaves Python; a row index out of range is an error,
never a read. The library is compiled at the first call where none was made before (`build`).
"""

import ctypes

import torch

from nvfp4 import checks, errors, row
from nvfp4.golden import Attended, Chosen
from nvfp4.native.library import DTYPE_CODES, AttentionJob, Isa, load
from nvfp4.native.threads import Execution, over_ranges

__all__ = ["Attended", "Chosen", "Execution", "Isa", "dequantise", "quantise", "sparse_mla"]

LEAST_ROWS = 1024
"""Rows worth a thread: below, starting it costs more than it saves (some 50 us)."""
LEAST_PAIRS = 1 << 14
"""Pairs of head and slot worth a thread: some 100 us of attention."""
HEAD_TILE = 16
"""Heads that attention handles together; a token is split over threads between tiles only."""


def quantise(
    values: torch.Tensor,
    scales: row.ScaleChoice = "amax",
    out: torch.Tensor | None = None,
    execution: Execution = Execution(),  # noqa: B008  frozen
) -> torch.Tensor:
    """[n, 576] float32, bfloat16 or float16 to rows [n, 352] uint8, as golden.quantise byte for
    byte.

    `out`: rows to write to instead of new ones, whose first touch costs more than the codec.
    """
    checks.values(values)
    checks.scale_choice(scales)
    rows = torch.empty(len(values), row.ROW_BYTES, dtype=torch.uint8) if out is None else out
    checks.result_rows(rows, len(values))
    library = load()
    entry = library.quantise(library.isa(execution.isa))
    dtype, source, target = DTYPE_CODES[values.dtype], values.data_ptr(), rows.data_ptr()
    stride = row.WIDTH * values.element_size()

    def call(first: int, end: int) -> None:
        where = target + first * row.ROW_BYTES
        entry(source + first * stride, dtype, where, end - first, scales == "mse")

    over_ranges(len(values), LEAST_ROWS, execution.thread_count(), call)
    return rows


def dequantise(
    rows: torch.Tensor,
    dtype: torch.dtype = torch.float32,
    out: torch.Tensor | None = None,
    execution: Execution = Execution(),  # noqa: B008  frozen
) -> torch.Tensor:
    """Rows [n, 352] uint8 to [n, 576] of `dtype`; exact, as golden.dequantise bit for bit.

    `out`: values to write to instead of new ones, whose first touch costs more than the codec.
    """
    checks.rows(rows)
    checks.result_dtype(dtype)
    values = torch.empty(len(rows), row.WIDTH, dtype=dtype) if out is None else out
    checks.result_values(values, dtype, len(rows))
    library = load()
    entry = library.dequantise(library.isa(execution.isa))
    source, target = rows.data_ptr(), values.data_ptr()
    stride = row.WIDTH * values.element_size()

    def call(first: int, end: int) -> None:
        where = target + first * stride
        entry(source + first * row.ROW_BYTES, where, DTYPE_CODES[dtype], end - first)

    over_ranges(len(rows), LEAST_ROWS, execution.thread_count(), call)
    return values


def sparse_mla(
    rows: torch.Tensor,
    queries: torch.Tensor,
    chosen: Chosen,
    scale: float,
    sinks: torch.Tensor | None = None,
    execution: Execution = Execution(),  # noqa: B008  frozen
) -> Attended:
    """golden.sparse_mla in float32, straight from packed rows; empty slots are never loaded.

    Relative L2 error of a token's output against float64 stays under 1e-5, whatever path runs it.
    Scores must stay within float32.
    """
    checks.rows(rows)
    checks.queries(queries)
    tokens, heads, _ = queries.shape
    checks.chosen(chosen.indices, chosen.counts, tokens)
    checks.softmax(scale, sinks, heads)
    library = load()
    _check_indices(chosen, len(rows))
    entry = library.attend(library.isa(execution.isa))
    slots = chosen.indices.shape[1]
    threads = max(1, min(execution.thread_count(), tokens * heads * slots // LEAST_PAIRS))
    span = heads if tokens >= threads else _span_of(heads, tokens, threads)
    attended = Attended(torch.empty(tokens, heads, row.LATENT), torch.empty(tokens, heads))
    job = AttentionJob(
        rows=rows.data_ptr(),
        queries=queries.data_ptr(),
        indices=chosen.indices.data_ptr(),
        counts=None if chosen.counts is None else chosen.counts.data_ptr(),
        sinks=None if sinks is None else sinks.data_ptr(),
        out=attended.out.data_ptr(),
        lse=attended.lse.data_ptr(),
        heads=heads,
        slots=slots,
        span_heads=span,
        scale=scale,
        query_dtype=DTYPE_CODES[queries.dtype],
    )

    def call(first: int, end: int) -> None:
        if entry(ctypes.addressof(job), first, end):
            raise MemoryError(f"no scratch memory for attention over {span} heads")

    over_ranges(tokens * -(-heads // span), 1, threads, call)
    return attended


def _span_of(heads: int, tokens: int, threads: int) -> int:
    """Heads of one work item, so that few tokens keep all threads busy; whole tiles."""
    spans = -(-threads // max(tokens, 1))
    tiles = -(-heads // HEAD_TILE)
    return HEAD_TILE * -(-tiles // spans)


def _check_indices(chosen: Chosen, rows: int) -> None:
    """IndexOutOfRange for the first index that is neither -1 nor a row."""
    tokens, slots = chosen.indices.shape
    counts = None if chosen.counts is None else chosen.counts.data_ptr()
    bad = load().first_bad_index()(chosen.indices.data_ptr(), counts, tokens, slots, rows)
    if bad >= 0:
        token, slot = divmod(bad, slots)
        raise errors.IndexOutOfRange(token, slot, int(chosen.indices[token, slot]), rows)
