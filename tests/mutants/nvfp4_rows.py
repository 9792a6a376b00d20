"""The native code of `nvfp4` with one rule broken, as edits of a copy of its sources.

A mutant is built for the one path it breaks, and caught when that path no longer agrees with
golden. `python -m tests.mutants` runs services; these are built by tests and the bench.
"""

import ctypes
import functools
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from unittest import mock

import torch

from benches.kernels.rows import edges, every_product, random_values
from nvfp4 import golden, native, row
from nvfp4.native import Chosen, Isa, build
from nvfp4.native.library import Library, load

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Mutant:
    """What is broken, in which file, and the path that runs it."""

    name: str
    part: Literal["codec", "attention"]
    file: str
    old: str
    new: str
    isa: Isa = Isa.PORTABLE


MUTANTS = (
    # codec
    Mutant(
        "linear scale order",
        "codec",
        "nvfp4.h",
        "return 320 + 8 * (group & 3) + (group >> 2);",
        "return 320 + group;",
    ),
    Mutant(
        "truncated codes",
        "codec",
        "codec_portable.cpp",
        "return static_cast<int>((value + 8388608.f) - 8388608.f);",
        "return static_cast<int>(value);",
    ),
    Mutant(
        "ties away from zero",
        "codec",
        "codec_portable.cpp",
        "return static_cast<int>((value + 8388608.f) - 8388608.f);",
        "return static_cast<int>(value + .5f);",
    ),
    Mutant(
        "truncated scales",
        "codec",
        "codec_portable.cpp",
        "magnitude += 0x7ffff + (magnitude >> 20 & 1);",
        "",
    ),
    Mutant(
        "swapped nibbles",
        "codec",
        "codec_portable.cpp",
        "best.codes[2 * i] | best.codes[2 * i + 1] << 4",
        "best.codes[2 * i + 1] | best.codes[2 * i] << 4",
    ),
    Mutant("division", "codec", "codec_portable.cpp", "group[i] * reciprocal", "group[i] / scale"),
    Mutant(
        "no smallest scale",
        "codec",
        "codec_portable.cpp",
        "wanted < MIN_SCALE ? MIN_SCALE : wanted",
        "wanted",
    ),
    Mutant(
        "NaN is dropped",
        "codec",
        "codec_portable.cpp",
        "if (largest > 0x7f800000) {",
        "if (false) {",
    ),
    Mutant(
        "signs of zero are lost",
        "codec",
        "codec_portable.cpp",
        "static_cast<uint8_t>(code | bits_of(group[i]) >> 31 << 3)",
        "static_cast<uint8_t>(code | (code && group[i] < 0 ? 8 : 0))",
    ),
    Mutant(
        "the last of equal scales",
        "codec",
        "codec_portable.cpp",
        "other.error < best.error",
        "other.error <= best.error",
    ),
    Mutant(
        "the error summed in another order",
        "codec",
        "codec_portable.cpp",
        "for (int i = 0; i < half; i++) squares[i] += squares[i + half];",
        "for (int i = 0; i < half; i++) squares[i] = squares[2 * i] + squares[2 * i + 1];",
    ),
    Mutant(
        "NaN with a sign", "codec", "tables.h", "scale != scale ? product : -product", "-product"
    ),
    # attention
    Mutant(
        "sums are not rescaled",
        "attention",
        "attend.h",
        "engine.rescale(tile, lane, correction[lane]);",
        "(void)correction;",
    ),
    Mutant(
        "the sink takes no weight",
        "attention",
        "attend.h",
        "sum * part + exp2(sink - highest)",
        "sum * part",
    ),
    Mutant(
        "empty slots are read", "attention", "attend.h", "count += indices[slot] >= 0;", "count++;"
    ),
    Mutant(
        "counts are ignored",
        "attention",
        "attend.h",
        "job.counts ? job.counts[token] : job.slots",
        "job.slots",
    ),
    Mutant(
        "rope does not score",
        "attention",
        "attention.cpp",
        "for (int d = 0; d < WIDTH; d++) {",
        "for (int d = 0; d < LATENT; d++) {",
    ),
    Mutant(
        "the last key of a block is left out",
        "attention",
        "attention.cpp",
        "for (int j = 0; j < keys; j++) {\n          const float *value",
        "for (int j = 0; j < keys - (keys == BLOCK); j++) {\n          const float *value",
    ),
    Mutant("base two is taken for e", "attention", "attend.h", "job.scale * LOG2_E", "job.scale"),
    # what only one instruction set has
    Mutant(
        "the second group gets the first one's scale",
        "codec",
        "unpack_avx512.h",
        "tables.latent[row[scale_at(group + 1)]]",
        "tables.latent[row[scale_at(group)]]",
        Isa.AVX512,
    ),
    Mutant(
        "rope subnormals lose their hidden zero",
        "codec",
        "unpack_avx512.h",
        "bits = _mm512_mask_permutexvar_epi32(bits, is_subnormal, magnitude, small);",
        "(void)is_subnormal, (void)small;",
        Isa.AVX512,
    ),
    Mutant(
        "weights keep eight bits",
        "attention",
        "attention_amx.cpp",
        "_mm512_cvtne2ps_pbh(_mm512_sub_ps(second, b), _mm512_sub_ps(first, a))",
        "_mm512_setzero_si512()",
        Isa.AMX,
    ),
    Mutant(
        "a chunk's groups change places in the queries",
        "attention",
        "attention_amx.cpp",
        "latent_place[(group * GROUP + value) / 2]",
        "latent_place[((1 - group) * GROUP + value) / 2]",
        Isa.AMX,
    ),
    Mutant(
        "the rope's halves change places",
        "attention",
        "attention_amx.cpp",
        "rope / 4 % 2 * TILE",
        "(1 - rope / 4 % 2) * TILE",
        Isa.AMX,
    ),
    Mutant(
        "a part is multiplied before it is unpacked",
        "attention",
        "attention_amx.cpp",
        "keys_ + step % 2 * TILE * PART_HALVES;\n      const",
        "keys_ + (step + 1) % 2 * TILE * PART_HALVES;\n      const",
        Isa.AMX,
    ),
)


def runnable() -> list[Mutant]:
    """The mutants of paths that this processor has."""
    return [mutant for mutant in MUTANTS if mutant.isa in load().supported]


def is_caught(mutant: Mutant, folder: Path) -> bool:
    """Whether the comparison with golden fails for the mutant; its sources go into the folder."""
    return not agrees(broken_library(mutant, folder), mutant.part)


def agrees(library: Library, part: Literal["codec", "attention"]) -> bool:
    """Whether a library does what golden does, by a short set of cases."""
    with mock.patch.object(native, "load", return_value=library):
        return codec_agrees() if part == "codec" else attention_agrees()


def broken_library(mutant: Mutant, folder: Path) -> Library:
    """The mutant's one path, compiled without optimisation."""
    place = folder / mutant.name.replace(" ", "_")
    sources = place / "src"
    shutil.copytree(build.SOURCES, sources)
    text = (sources / mutant.file).read_text()
    assert text.count(mutant.old) == 1, f"{mutant.name}: the line it breaks is not there once"
    (sources / mutant.file).write_text(text.replace(mutant.old, mutant.new))
    support, *portable = build.PORTABLE_UNITS
    units = [
        unit
        for unit in (*portable, *build.X86_UNITS)
        if unit.isa == mutant.isa.value and unit.source.startswith(mutant.part)
    ]
    with mock.patch.multiple(
        build,
        SOURCES=sources,
        units=lambda: (support, *units),
        COMMON_FLAGS=(*build.COMMON_FLAGS, "-O0", "-w"),
    ):
        build.build(build.find_compiler(), place / "mutant.so")
    return Library(ctypes.CDLL(str(place / "mutant.so")), (mutant.isa,))


def codec_agrees() -> bool:
    """Rows are packed and unpacked as golden does."""
    values, rows, packed, unpacked = _codec_cases()
    return all(
        torch.equal(native.quantise(values, scales), want) for scales, want in rows.items()
    ) and all(
        torch.equal(native.dequantise(packed, want.dtype).view(torch.uint8), want.view(torch.uint8))
        for want in unpacked
    )


def attention_agrees() -> bool:
    """Outputs and log-sum-exps are float64's, over rising scores, empty slots, counts and sinks."""
    generator = torch.Generator().manual_seed(21)
    pool = golden.quantise(torch.randn(202, row.WIDTH, generator=generator))
    pool[[0, -1], 320:] = row.E4M3_NAN_BYTE  # what an empty slot would read, and one past a count
    rows = pool[1:]
    indices = torch.randint(0, 200, (2, 150), dtype=torch.int32, generator=generator)
    queries = torch.randn(2, 5, row.WIDTH, generator=generator) * 4
    rising = (queries[0, 0] @ golden.dequantise(rows[:200]).T).argsort()[-150:]
    indices[0], indices[1, ::7], indices[1, 120:] = rising.int(), -1, 200
    chosen = Chosen(indices, torch.tensor([150, 120], dtype=torch.int32))
    sinks = torch.linspace(0, 60, 5)
    got = native.sparse_mla(rows, queries, chosen, 0.2, sinks)
    want = golden.sparse_mla(rows, queries, chosen, 0.2, sinks)
    is_near = torch.allclose(got.out.double(), want.out, rtol=0, atol=1e-4)
    return bool(is_near and torch.allclose(got.lse.double(), want.lse, rtol=1e-5))


@functools.cache
def _codec_cases() -> tuple[
    torch.Tensor, dict[row.ScaleChoice, torch.Tensor], torch.Tensor, list[torch.Tensor]
]:
    """Values with their rows, and rows with their unpacked values, by golden."""
    random = random_values(150, torch.Generator().manual_seed(20))
    values = torch.cat([random, *edges().values()])
    choices: tuple[row.ScaleChoice, ...] = ("amax", "mse")
    rows = {scales: golden.quantise(values, scales) for scales in choices}
    packed = torch.cat([every_product(), *rows.values()])
    packed[100:110, :256] = 0x9A
    return values, rows, packed, [golden.dequantise(packed, dtype) for dtype in DTYPES]
