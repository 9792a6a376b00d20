"""Random steps, and how far a result is from the reference: for tests, benches and the device
check.

A result is good when every query row's error, relative to that row's own length, is within the
tolerance, rows without a chosen slot are exactly zero, and the log-sum-exps agree.
"""

import math
from dataclasses import dataclass

import torch

from sparse_mla import reference, row
from sparse_mla.call import Decode
from sparse_mla.fusion import fuse

SPLIT_TOLERANCE = 1e-6
"""Of fp16x2: everything but float32 sums is exact or has 22 bits; the emulator stays below 7e-7."""
HALF_TOLERANCE = 5e-4
"""Of fp16: a probability has 11 bits, an error of at most 2^-12 each; one row alone shows no
more."""
LSE_TOLERANCE = {False: 5e-4, True: 1e-5}
"""By `split`, absolute: the denominator sums the rounded probabilities, so that weights add to
1."""


@dataclass(frozen=True)
class Case:
    """What a step is made of."""

    heads: int = 16
    slots: int = 64
    tokens: int = 1
    empty: float = 0.0
    """share of slots that are -1; 1.0 is all of them"""
    split: bool = True
    has_sinks: bool = False
    requests: tuple[int, ...] = ()
    """fused: tokens of each request; empty: not fused"""
    shared: float = 0.8
    """share of a request's slots that its tokens choose alike, when fused"""
    query_dtype: torch.dtype = torch.bfloat16
    out_dtype: torch.dtype = torch.float32
    num_rows: int = 1024
    seed: int = 0


@dataclass(frozen=True)
class Difference:
    """A result against the reference."""

    out: float
    """the worst query row's error, relative to the row's length; infinity where that is zero"""
    lse: float
    """absolute"""

    def is_within(self, split: bool) -> bool:
        """Whether both are inside the tolerance; NaN never is."""
        return self.out < (SPLIT_TOLERANCE if split else HALF_TOLERANCE) and (
            self.lse < LSE_TOLERANCE[split]
        )


def random_rows(num_rows: int, generator: torch.Generator) -> torch.Tensor:
    """uint8 [num_rows, 352]: all codes, normal rope values, scales around 0.25."""
    rows = torch.randint(0, 256, (num_rows, row.ROW_BYTES), dtype=torch.uint8, generator=generator)
    rope = torch.randn(num_rows, row.ROPE, generator=generator)
    scales = 0.1 + 0.2 * torch.randn(num_rows, row.LATENT // row.GROUP, generator=generator).abs()
    rows[:, row.ROPE_AT : row.SCALES_AT] = rope.to(torch.float8_e4m3fn).view(torch.uint8)
    rows[:, row.SCALES_AT :] = scales.to(torch.float8_e4m3fn).view(torch.uint8)
    return rows


def make_step(case: Case, device: str = "cpu") -> Decode:
    """The case's step, its outputs filled with NaN."""
    generator = torch.Generator().manual_seed(case.seed)
    tokens = sum(case.requests) or case.tokens
    query = torch.randn(tokens, case.heads, row.HEAD_SIZE, generator=generator)
    indices = torch.randint(
        0, case.num_rows, (tokens, case.slots), dtype=torch.int32, generator=generator
    )
    start = 0
    for length in case.requests:  # a request's tokens repeat most of its first token's choice
        same = torch.rand(case.slots, generator=generator) < case.shared
        indices[start : start + length, same] = indices[start, same].clone()
        start += length
    indices[torch.rand(indices.shape, generator=generator) < case.empty] = -1
    slots = fuse(indices, case.requests, case.heads) if case.requests else None
    sinks = torch.randn(case.heads, generator=generator) if case.has_sinks else None
    step = Decode(
        query=query.to(case.query_dtype),
        rows=random_rows(case.num_rows, generator),
        indices=indices if slots is None else slots.indices,
        masks=None if slots is None else slots.masks,
        jobs=None if slots is None else slots.jobs,
        sinks=sinks,
        scale=1 / math.sqrt(row.HEAD_SIZE),
        out_scale=1.0,
        max_tokens=1 if slots is None else slots.max_tokens,
        planned_tokens=None if slots is None else slots.tokens,
        split=case.split,
        out=torch.full((tokens, case.heads, row.LATENT), math.nan, dtype=case.out_dtype),
        lse=torch.full((tokens, case.heads), math.nan),
    )
    return step if device == "cpu" else _moved(step, device)


def difference(step: Decode) -> Difference:
    """The step's outputs against the reference's."""
    out, lse = reference.decode(step)
    length = out.norm(dim=-1)
    error = (step.out.double() - out).norm(dim=-1)
    exactly = torch.where(error == 0, 0.0, math.inf)
    relative = torch.where(length > 0, error / length.clamp(min=1e-300), exactly)
    assert step.lse is not None
    apart = torch.where(step.lse == lse, 0.0, (step.lse.double() - lse).abs())
    return Difference(worst(relative), worst(apart))


def loaded_bytes(step: Decode) -> int:
    """What a run of the step must load of the cache: each used slot once for each row group."""
    return int(_is_used(step).sum()) * row.ROW_BYTES * (step.num_clusters // step.num_jobs)


def distinct_bytes(step: Decode) -> int:
    """The rows that a step uses, each once: the least that memory must give, whatever L2 serves."""
    return len(step.indices[_is_used(step)].unique()) * row.ROW_BYTES


def _is_used(step: Decode) -> torch.Tensor:
    is_used = step.indices >= 0
    return is_used if step.masks is None else is_used & (step.masks != 0)


def worst(values: torch.Tensor) -> float:
    """The largest; infinity if one is NaN, which no comparison with a limit would see."""
    return math.inf if bool(values.isnan().any()) else float(values.max())


def _moved(step: Decode, device: str) -> Decode:
    moved = {
        name: value.to(device) if isinstance(value, torch.Tensor) else value
        for name, value in vars(step).items()
    }
    return Decode(**moved)
