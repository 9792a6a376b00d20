"""The decode kernel with one rule broken, as edits of a copy of its sources.

A mutant is caught when the emulated kernel's results, loaded bytes, bank conflicts or errors are
wrong, or when the race check reports one. `python -m tests.mutants` runs services; these are built
by tests and the bench.
"""

import functools
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from sparse_mla import build, emulated, races, verify
from sparse_mla.errors import EmulationFailed
from sparse_mla.verify import Case


@dataclass(frozen=True)
class Mutant:
    """What is broken, where, and whether only the race check can see it."""

    name: str
    file: str
    old: str
    new: str
    needs_races: bool = False


MUTANTS = (
    # the row
    Mutant(
        "scales_in_linear_order",
        "cuda/unpack.h",
        "row[320 + 8 * (lane & 3) + (lane >> 2)]",
        "row[320 + lane]",
    ),
    Mutant(
        "nibbles_swapped",
        "cuda/unpack.h",
        "e2m1_pairs(low, codes.x);",
        "e2m1_pairs(low, (codes.x & 0x0f0f0f0fu) << 4 | (codes.x >> 4 & 0x0f0f0f0fu));",
    ),
    Mutant("rope_misplaced", "cuda/unpack.h", "row + 256 + 2 * lane", "row + 256 + 2 * (lane ^ 1)"),
    # empty slots and indices
    Mutant(
        "empty_slots_are_loaded",
        "cuda/unpack.h",
        "if (row == -1) return {row, 0};",
        "if (row == -1) return {0, 1u << 31};",
    ),
    Mutant(
        "empty_rows_keep_garbage",
        "cuda/unpack.h",
        "words[i] = halves;",
        "(void)words, (void)halves;",
    ),
    Mutant("index_is_not_checked", "cuda/unpack.h", "want.row < call.num_rows", "true"),
    Mutant("mask_is_ignored", "cuda/score.h", ">> token[r] & 1) == 0", "| 1u) == 0"),
    # the softmax
    Mutant(
        "accumulator_is_not_rescaled", "cuda/accumulate.h", "acc[n][i] *= by[i / 2];", "(void)by;"
    ),
    Mutant("denominator_is_not_rescaled", "cuda/score.h", "sum[r] *= correction;", ""),
    Mutant("sum_of_one_slice", "cuda/merge.h", "slice < S::kSlices", "slice < 1"),
    Mutant("partials_weigh_the_same", "cuda/merge.h", "exp2_of(tops[b] - top) * scale", "scale"),
    Mutant(
        "sink_is_forgotten",
        "cuda/merge.h",
        "float denominator = has_sink ?",
        "float denominator = false ?",
    ),
    Mutant("query_exponent_is_lost", "cuda/query.h", " * power_of_two(half - shift)", ""),
    # the matrices
    Mutant(
        "values_are_not_transposed",
        "cuda/accumulate.h",
        "load_matrices_transposed(values",
        "load_matrices(values",
    ),
    Mutant("low_halves_are_dropped", "cuda/accumulate.h", "part < S::kParts", "part < 1"),
    Mutant(
        "tile_without_padding", "cuda/shapes.h", "kTileStride = kDims + 8", "kTileStride = kDims"
    ),
    # the split
    Mutant(
        "split_drops_the_rest",
        "cuda/shapes.h",
        "return {first, all * (rank + 1) / blocks - first};",
        "return {all / blocks * rank, all / blocks};",
    ),
    # barriers in shared memory
    Mutant(
        "filled_parity_is_wrong",
        "cuda/shapes.h",
        "mbarrier_wait(b, t.lap & 1)",
        "mbarrier_wait(b, ~t.lap & 1)",
    ),
    Mutant("freed_parity_is_wrong", "cuda/shapes.h", "(t.lap - 1) & 1", "t.lap & 1"),
    Mutant(
        "freed_is_not_awaited",
        "cuda/shapes.h",
        "if (t.lap > 0) mbarrier_wait",
        "if (false) mbarrier_wait",
    ),
    Mutant(
        "one_arrival_too_many_expected",
        "cuda/decode.h",
        "mbarrier_init(&sm.tile_full[i], kUnpackWarps)",
        "mbarrier_init(&sm.tile_full[i], kUnpackWarps + 1)",
    ),
    Mutant(
        "fewer_bytes_expected",
        "cuda/unpack.h",
        "mbarrier_expect(full, bytes)",
        "mbarrier_expect(full, bytes - 16)",
    ),
    Mutant(
        "copy_is_not_awaited",
        "cuda/unpack.h",
        "    wait_filled(&sm.packed_full[packed.slot][warp], packed);\n",
        "",
    ),
    # barriers among threads
    Mutant(
        "blocks_merge_before_all_are_done",
        "cuda/decode.h",
        "  cluster_sync();  // every partial is complete\n",
        "",
    ),
    Mutant(
        "block_leaves_while_it_is_read",
        "cuda/decode.h",
        "  cluster_sync();  // no block leaves while its shared memory is read\n",
        "",
    ),
    Mutant("barriers_are_used_before_they_exist", "cuda/decode.h", "  block_sync();\n", "", True),
    Mutant("weights_are_read_too_soon", "cuda/merge.h", "  block_sync();\n", "", True),
    Mutant("query_is_read_too_soon", "cuda/query.h", "  named_sync(1, 32 * kWarps);\n", "", True),
    Mutant(
        "slices_are_read_too_soon",
        "cuda/score.h",
        "  named_sync(3 + tile, 32 * S::kSlices);\n",
        "",
        True,
    ),
    Mutant(
        "one_exchange_box", "cuda/score.h", "sm.exchange[stage % 2]", "sm.exchange[stage % 1]", True
    ),
    Mutant(
        "partial_over_a_ring_in_use",
        "cuda/accumulate.h",
        "  named_sync(2, 32 * kAccumulateWarps);\n",
        "",
        True,
    ),
    Mutant(
        "lane_0_arrives_for_lanes_still_writing",
        "cuda/shapes.h",
        "  warp_sync();\n  if (lane == 0) mbarrier_arrive",
        "  if (lane == 0) mbarrier_arrive",
        True,
    ),
)

WATCHED_CASES = (
    (Case(slots=230, empty=0.1, has_sinks=True), 3),
    (Case(slots=300, empty=0.3, split=False, seed=1), 2),
    (Case(heads=20, slots=100, requests=(3, 1), seed=2), 3),
)
"""(step, blocks); together they use laps of the ring, uneven splits, masks and sinks."""


def copy_sources(mutant: Mutant, folder: Path) -> Path:
    """The sources with the mutant's edit, in a new folder."""
    sources = folder / mutant.name
    for name in ("cuda", "emulator"):
        shutil.copytree(build.SOURCES / name, sources / name)
    file = sources / mutant.file
    text = file.read_text()
    assert text.count(mutant.old) == 1, f"{mutant.name}: the line it breaks is not there once"
    file.write_text(text.replace(mutant.old, mutant.new))
    return sources


def problems(library: Path) -> list[str]:
    """What a build of the emulator does wrong in the cases; empty for the real one."""
    found = []
    for case, blocks in WATCHED_CASES:
        step = verify.make_step(case)
        try:
            counters = emulated.decode(step, blocks, seed=case.seed, library=library)
        except EmulationFailed as error:
            found.append(error.what)
            continue
        result = verify.difference(step)
        if not result.is_within(case.split):
            found.append(f"error {result.out:.1e}, log-sum-exp off by {result.lse:.1e}")
        if counters.loaded_bytes != verify.loaded_bytes(step):
            found.append(f"{counters.loaded_bytes} bytes loaded, not {verify.loaded_bytes(step)}")
        if counters.matrix_conflicts:
            found.append(f"{counters.matrix_conflicts} bank conflicts of ldmatrix")
    return found + bad_index_problems(library)


def bad_index_problems(library: Path) -> list[str]:
    """An unchecked index: nothing is read, its token is NaN, its neighbour is right."""
    step = verify.make_step(Case(tokens=2, slots=40))
    assert step.lse is not None
    step.indices[0, 5], step.indices[1, 7] = len(step.rows), -1
    try:
        emulated.decode(step, 2, library=library, is_checked=False)
    except EmulationFailed as error:
        return [error.what]
    good = replace(
        step, query=step.query[1:], indices=step.indices[1:], out=step.out[1:], lse=step.lse[1:]
    )
    found = []
    if not step.out[0].isnan().all():
        found.append("a token with an index outside the cache is not NaN")
    if not verify.difference(good).is_within(split=True):
        found.append("a token beside one with an index outside the cache is wrong")
    return found


def catch(mutant: Mutant, folder: Path) -> str | None:
    """How the mutant shows, or None where it survives."""
    sources = copy_sources(mutant, folder)
    if mutant.needs_races:
        return races.first_race(races.build_program(sources, sources), races.Watched())
    library = sources / "mutant.so"
    flags = [*build.HOST_FLAGS, "-O1", "-w"]  # what a mutant leaves unused is its business
    body = str(sources / "emulator" / "emulated.cpp")
    build.compile_to(["g++", *flags, "-shared", "-fPIC", body, *unbroken_objects(folder)], library)
    return next(iter(problems(library)), None)


@functools.cache
def unbroken_objects(folder: Path) -> list[str]:
    """The parts of the emulator that no mutant of the kernel changes."""
    objects = []
    for name in ("emulator", "collectives"):
        objects.append(str(folder / f"{name}.o"))
        source = str(build.SOURCES / "emulator" / f"{name}.cpp")
        build.compile_to(["g++", *build.HOST_FLAGS, "-fPIC", "-c", source], Path(objects[-1]))
    return objects
