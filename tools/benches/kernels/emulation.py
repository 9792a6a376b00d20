"""The kernel's body on the emulator against the float64 reference: every fill, cluster size and
mode.

A fill is how many rows a token's list holds. What may go wrong does so at the edges of a stage (32
slots), of a ring's lap and of an uneven split, so both sides of every stage edge are run.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from benches.report import Figure
from sparse_mla import emulated, races, verify
from sparse_mla.call import Decode
from sparse_mla.row import STAGE_SLOTS
from sparse_mla.verify import Case

BLOCKS = range(3, 9)
FULL_LIST = 2048
EDGES = tuple(range(1, FULL_LIST // STAGE_SLOTS + 1))
"""In stages: all of a full list's."""
SHORT_EDGES = (1, 3, 8)


def exactness_figures(*, is_full: bool) -> list[Figure]:
    """Worst errors, and whether exactly the used rows were read, over all cases."""
    worst = {True: 0.0, False: 0.0}
    counts = {True: 0, False: 0}
    wrong_bytes = conflicts = 0
    for number, (case, blocks) in enumerate(cases(is_full=is_full)):
        step = verify.make_step(case)
        counters = emulated.decode(step, blocks, seed=number)
        found = verify.difference(step)
        error = found.out if found.is_within(case.split) else max(found.out, found.lse)
        worst[case.split] = max(worst[case.split], error)
        counts[case.split] += 1
        wrong_bytes += counters.loaded_bytes != verify.loaded_bytes(step)
        conflicts += counters.matrix_conflicts
    return [
        Figure(
            f"emulated_error_{name}",
            worst[split],
            "relative",
            f"< {limit:g}",
            worst[split] < limit,
            f"worst query row of {counts[split]} steps",
        )
        for name, split, limit in (
            ("fp16x2", True, verify.SPLIT_TOLERANCE),
            ("fp16", False, verify.HALF_TOLERANCE),
        )
    ] + [
        Figure("steps_that_read_other_bytes", wrong_bytes, "", "0", wrong_bytes == 0),
        Figure("ldmatrix_bank_conflicts", conflicts, "", "0", conflicts == 0),
    ]


def cases(*, is_full: bool) -> Iterator[tuple[Case, int]]:
    """(step, blocks); few heads where the fill is what matters."""
    edges = EDGES if is_full else SHORT_EDGES
    fills = [1, *(edge * STAGE_SLOTS + side for edge in edges for side in (-1, 0, 1))]
    for blocks in BLOCKS:
        yield Case(slots=FULL_LIST if is_full else 70, empty=1.0, has_sinks=True), blocks
        yield Case(slots=FULL_LIST, num_rows=8192, seed=blocks), blocks
        for fill in fills:
            yield Case(slots=fill, seed=fill), blocks
        for seed in range(8 if is_full else 1):  # holes anywhere, whole stages of them too
            yield Case(slots=FULL_LIST, empty=(0.02, 0.3, 0.9, 0.995)[seed % 4], seed=seed), blocks
        for fill in (1, 33, 97, 500, FULL_LIST):
            yield Case(slots=fill, split=False, seed=fill), blocks
        for heads in (1, 8, 24, 32, 48, 64, 128):
            yield Case(heads=heads, slots=150, empty=0.1, has_sinks=True), blocks


def fusion_figures() -> list[Figure]:
    """A request's speculative tokens over the union of their rows, against each token alone."""
    apart = bytes_fused = bytes_alone = 0.0
    for seed, requests in enumerate(((4,), (3, 2), (2, 2, 1))):
        fused = verify.make_step(Case(slots=256, requests=requests, empty=0.05, seed=seed))
        alone = _unfused(fused)
        bytes_fused += emulated.decode(fused, 4).loaded_bytes
        bytes_alone += emulated.decode(alone, 4).loaded_bytes
        difference = (fused.out - alone.out).norm(dim=-1) / alone.out.norm(dim=-1)
        apart = max(apart, verify.worst(difference))
    return [
        Figure("fused_against_unfused", apart, "relative", "< 1e-06", apart < 1e-6),
        Figure(
            "bytes_read_fused",
            round(bytes_fused / bytes_alone, 3),
            "of unfused",
            "< 1",
            bytes_fused < bytes_alone,
            "tokens that choose 80 % alike: synthetic; the gain is the overlap",
        ),
    ]


def race_figure(*, is_full: bool) -> Figure:
    """Runs under ThreadSanitizer that reported something."""
    tiles = (1, 2, 4)
    watched = [
        races.Watched(row_tiles, split, blocks, seed)
        for row_tiles in tiles
        for split in (False, True)
        for blocks, seed in (((2, 1), (3, 2)) if is_full else ((2, 1),))
    ]
    with tempfile.TemporaryDirectory() as folder:
        program = races.build_program(Path(folder))
        reports = [report for one in watched if (report := races.first_race(program, one))]
    return Figure("races", len(reports), "", "0", not reports, f"{len(watched)} runs")


def _unfused(step: Decode) -> Decode:
    """The same tokens, each with its own list."""
    assert step.jobs is not None
    assert step.masks is not None
    indices = step.indices.new_full((len(step.query), len(step.indices)), -1)
    for first, tokens, begin, length in step.jobs.tolist():
        for token in range(tokens):
            is_used = (step.masks[begin : begin + length] >> token & 1).bool()
            indices[first + token, :length] = torch.where(
                is_used, step.indices[begin : begin + length], -1
            )
    return replace(
        step,
        indices=indices,
        masks=None,
        jobs=None,
        max_tokens=1,
        planned_tokens=None,
        out=torch.empty_like(step.out),
    )
