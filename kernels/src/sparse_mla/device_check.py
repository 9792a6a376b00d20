"""`kernels/device_check.sh`: build, compare and time the kernel on the GPU of this machine.

Times are of launches back to back in a CUDA graph, each over rows and queries of its own: together
their distinct rows are more than twice the L2 cache, so rows come from memory as they do in a
decode step.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sparse_mla import build, device, row, verify
from sparse_mla.api import run
from sparse_mla.call import Decode
from sparse_mla.errors import SparseMlaError
from sparse_mla.fusion import fuse
from sparse_mla.verify import Case

DEVICE = "cuda"
NOTHING_RUN = 3
"""Exit status without a GPU."""
SPLIT_TOLERANCE = 1e-5
"""Of fp16x2 on a GPU: above the emulator's 1e-6 for ex2.approx (2 ulp) and for sums inside the
tensor cores, whose order and truncation are not published. Assumed until a GPU shows its own."""
BF16_TOLERANCE = 2**-8
REPLAYS = 12
HBM_BYTES_PER_S = {
    "H100": 3.35e12,
    "H200": 4.8e12,
    "B200": 8.0e12,  # GB200 too, by its name
    "B300": 8.0e12,
}
"""By the vendor's sheets; for floors only."""
CACHE_ROWS = 1 << 23
"""3 GB: a row is rarely drawn twice while L2 still has it."""
SHARED = 0.8
"""Of the slots of a request's tokens, chosen alike; an assumption, real traces decide."""


@dataclass(frozen=True)
class Shape:
    """A timed step."""

    tokens: int
    heads: int = 16
    blocks: int | None = None
    """None: as the planner chooses"""
    split: bool = False
    request_tokens: int = 1
    """consecutive tokens that choose alike"""
    is_fused: bool = False
    slots: int = 2048


SHAPES = (
    *(Shape(tokens, blocks=blocks) for tokens in (15, 20, 35) for blocks in (8, 7, 6, 5, 4, 3)),
    *(Shape(tokens) for tokens in (1, 15, 20, 35, 64, 128, 256)),
    *(Shape(tokens, split=True) for tokens in (15, 35)),
    *(Shape(tokens, heads) for heads in (8, 32, 64, 128) for tokens in (15, 35)),
    *(
        Shape(tokens, request_tokens=each, is_fused=fused)
        for tokens in (16, 64)
        for each in (2, 4)
        for fused in (False, True)
    ),
)

CASES: tuple[tuple[Case, int], ...] = (
    *(
        (Case(slots=slots, seed=slots), blocks)
        for slots in (1, 33, 97, 500)
        for blocks in range(1, 9)
    ),
    *((Case(slots=2048, empty=0.2, num_rows=8192, tokens=3), blocks) for blocks in range(3, 9)),
    *(
        (Case(heads=heads, slots=150, empty=0.1, has_sinks=True), 4)
        for heads in (1, 8, 24, 64, 128)
    ),
    *((Case(heads=heads, slots=300, split=False), 3) for heads in (16, 32, 64)),
    *((Case(slots=70, empty=1.0, has_sinks=sinks), 5) for sinks in (False, True)),
    *(
        (Case(heads=heads, slots=300, requests=requests, empty=0.1), 4)
        for heads, requests in ((16, (4, 3, 1)), (64, (1, 1)), (8, (8,)))
    ),
    (Case(slots=64, query_dtype=torch.float8_e4m3fn), 3),
    (Case(slots=64, query_dtype=torch.float16), 3),
    (Case(slots=64, out_dtype=torch.bfloat16), 3),
)


def main() -> int:
    """Returns 0 when every case is right."""
    if not torch.cuda.is_available():
        for architecture in build.ARCHITECTURES:
            started = time.monotonic()
            build.device_library(architecture)
            say(f"compiled {architecture} ({time.monotonic() - started:.0f} s)")
        say("there is no CUDA device here: nothing was run, compared or timed")
        return NOTHING_RUN
    name = torch.cuda.get_device_name()
    started = time.monotonic()
    build.device_library(device.architecture(0))
    say(f"{name}, {device.architecture(0)}: built in {time.monotonic() - started:.0f} s")
    for tiles in (1, 2, 4):
        clusters = dict(device.capacity(0, tiles, False).clusters)
        say(f"clusters at once, {16 * tiles} query rows: {clusters}")
    wrong = compare(CASES)
    say(
        f"{len(CASES) - len(wrong)} of {len(CASES)} cases right"
        + "".join(f"\n  {w}" for w in wrong)
    )
    wrong += [] if bad_index_is_nan() else ["an index outside the cache does not give NaN"]
    rows = timed_rows()
    times = [time_shape(shape, rows, name) for shape in SHAPES]
    say(table(times))
    say(json.dumps({"card": name, "wrong": wrong, "times": times}))
    return 1 if wrong else 0


def compare(cases: Sequence[tuple[Case, int]]) -> list[str]:
    """What is wrong against the float64 reference, which runs on the GPU too."""
    wrong = []
    for case, blocks in cases:
        step = verify.make_step(case, DEVICE)
        try:
            run(step, blocks)
            found = verify.difference(step)
        except SparseMlaError as error:
            wrong.append(f"{case}, {blocks} blocks: {error}")
            continue
        limit = SPLIT_TOLERANCE if case.split else verify.HALF_TOLERANCE
        if case.out_dtype == torch.bfloat16:
            limit = BF16_TOLERANCE
        if not (found.out < limit and found.lse < max(limit, verify.LSE_TOLERANCE[case.split])):
            wrong.append(f"{case}, {blocks} blocks: {found}")
    return wrong


def bad_index_is_nan() -> bool:
    """An index outside the cache is not read, and shows."""
    step = verify.make_step(Case(tokens=2, slots=40), DEVICE)
    step.indices[0, 5] = len(step.rows)
    run(step, 3)
    return bool(step.out[0].isnan().all()) and not bool(step.out[1].isnan().any())


def time_shape(shape: Shape, rows: torch.Tensor, card: str) -> dict[str, float | int | str]:
    """The median and best time of a launch, and what it moved.

    `loaded_gb_per_s` counts a row as often as clusters load it, L2's part included; `hbm_floor_us`
    is the time that memory needs for the distinct rows alone.
    """
    steps = [make_timed_step(shape, rows, seed=0)]
    distinct = verify.distinct_bytes(steps[0])
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    launches = max(4, -(-5 * l2_bytes // (2 * distinct)))
    steps += [make_timed_step(shape, rows, seed) for seed in range(1, launches)]
    times_us = sorted(time_graph(steps, shape.blocks))
    median_us = times_us[len(times_us) // 2]
    loaded = verify.loaded_bytes(steps[0])
    work = 2 * (row.HEAD_SIZE + row.LATENT) * shape.heads * shape.tokens * shape.slots
    peak = next((rate for key, rate in HBM_BYTES_PER_S.items() if key in card), None)
    return {
        "tokens": shape.tokens,
        "heads": shape.heads,
        "alike": shape.request_tokens,
        "fused": "yes" if shape.is_fused else "",
        "blocks": shape.blocks or device.planned_blocks(steps[0]),
        "mode": "fp16x2" if shape.split else "fp16",
        "us": round(median_us, 2),
        "best_us": round(times_us[0], 2),
        "loaded_gb_per_s": round(loaded / median_us / 1e3, 1),
        "tflops": round(work / median_us / 1e6, 1),
        "hbm_floor_us": round(distinct / peak * 1e6, 2) if peak else "",
    }


def timed_rows() -> torch.Tensor:
    """The cache of every timed step."""
    rows = torch.randint(0, 256, (CACHE_ROWS, row.ROW_BYTES), dtype=torch.uint8, device=DEVICE)
    rows[:, row.ROPE_AT :] = 0x30  # rope values and scales of 0.5: no NaN among the random bytes
    return rows


def make_timed_step(shape: Shape, rows: torch.Tensor, seed: int) -> Decode:
    """A step with its own indices and queries over a cache of which it reads little."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    each, requests = shape.request_tokens, shape.tokens // shape.request_tokens
    drawn = torch.randint(
        *(0, len(rows), (requests, each, shape.slots)),
        dtype=torch.int32,
        device=DEVICE,
        generator=generator,
    )
    is_alike = torch.rand(requests, 1, shape.slots, device=DEVICE, generator=generator) < SHARED
    indices = torch.where(is_alike, drawn[:, :1], drawn).flatten(0, 1)
    slots = fuse(indices, [each] * requests, shape.heads) if shape.is_fused else None
    query = torch.randn(
        shape.tokens, shape.heads, row.HEAD_SIZE, device=DEVICE, generator=generator
    )
    return Decode(
        query=query.bfloat16(),
        rows=rows,
        indices=indices if slots is None else slots.indices,
        masks=None if slots is None else slots.masks,
        jobs=None if slots is None else slots.jobs,
        sinks=None,
        scale=row.HEAD_SIZE**-0.5,
        out_scale=1.0,
        max_tokens=1 if slots is None else slots.max_tokens,
        planned_tokens=None if slots is None else slots.tokens,
        split=shape.split,
        out=query.new_empty((shape.tokens, shape.heads, row.LATENT), dtype=torch.bfloat16),
        lse=None,
    )


def time_graph(steps: Sequence[Decode], blocks: int | None) -> list[float]:
    """Microseconds of a launch, once for each replay of a graph of all of them."""
    for step in steps[:2]:  # loads the module and asks for the occupancy, which a capture may not
        run(step, blocks)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for step in steps:
            run(step, blocks)
    times_us = []
    for replay in range(REPLAYS + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        if replay >= 2:  # the first ones warm up
            times_us.append(start.elapsed_time(end) * 1e3 / len(steps))
    return times_us


def table(rows: Sequence[dict[str, float | int | str]]) -> str:
    """The times as columns."""
    names = list(rows[0])
    cells = [names, *([str(value) for value in one.values()] for one in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    )


def say(text: str) -> None:
    """Progress goes out at once: the command may be cut off."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
