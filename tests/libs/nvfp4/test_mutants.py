"""The comparison with golden fails for native code with one rule broken."""

import ctypes
import functools
import shutil

import pytest
import torch

from benches.kernels.codec import every_product
from benches.kernels.rows import edges, random_values
from nvfp4 import golden, native, row
from nvfp4.native import Chosen, Isa, build
from nvfp4.native.library import Library, load
from tests.libs.nvfp4.test_native_codec import BITS, same_bits

CODEC_MUTANTS = {
    "linear scale order": (
        "nvfp4.h",
        "return 320 + 8 * (group & 3) + (group >> 2);",
        "return 320 + group;",
    ),
    "truncated codes": (
        "codec_portable.cpp",
        "return static_cast<int>((value + 8388608.f) - 8388608.f);",
        "return static_cast<int>(value);",
    ),
    "ties away from zero": (
        "codec_portable.cpp",
        "return static_cast<int>((value + 8388608.f) - 8388608.f);",
        "return static_cast<int>(value + .5f);",
    ),
    "truncated scales": (
        "codec_portable.cpp",
        "magnitude += 0x7ffff + (magnitude >> 20 & 1);",
        "",
    ),
    "swapped nibbles": (
        "codec_portable.cpp",
        "best.codes[2 * i] | best.codes[2 * i + 1] << 4",
        "best.codes[2 * i + 1] | best.codes[2 * i] << 4",
    ),
    "division": ("codec_portable.cpp", "group[i] * reciprocal", "group[i] / scale"),
    "no smallest scale": (
        "codec_portable.cpp",
        "wanted < MIN_SCALE ? MIN_SCALE : wanted",
        "wanted",
    ),
    "NaN is dropped": ("codec_portable.cpp", "if (largest > 0x7f800000) {", "if (false) {"),
    "signs of zero are lost": (
        "codec_portable.cpp",
        "static_cast<uint8_t>(code | bits_of(group[i]) >> 31 << 3)",
        "static_cast<uint8_t>(code | (code && group[i] < 0 ? 8 : 0))",
    ),
    "the last of equal scales": (
        "codec_portable.cpp",
        "other.error < best.error",
        "other.error <= best.error",
    ),
    "the error summed in another order": (
        "codec_portable.cpp",
        "for (int i = 0; i < half; i++) squares[i] += squares[i + half];",
        "for (int i = 0; i < half; i++) squares[i] = squares[2 * i] + squares[2 * i + 1];",
    ),
    "NaN with a sign": ("tables.h", "scale != scale ? product : -product", "-product"),
}
ATTENTION_MUTANTS = {
    "sums are not rescaled": (
        "attend.h",
        "engine.rescale(tile, lane, correction[lane]);",
        "(void)correction;",
    ),
    "the sink takes no weight": (
        "attend.h",
        "sum * part + exp2(sink - highest)",
        "sum * part",
    ),
    "empty slots are read": ("attend.h", "count += indices[slot] >= 0;", "count++;"),
    "counts are ignored": (
        "attend.h",
        "job.counts ? job.counts[token] : job.slots",
        "job.slots",
    ),
    "rope does not score": (
        "attention.cpp",
        "for (int d = 0; d < WIDTH; d++) {",
        "for (int d = 0; d < LATENT; d++) {",
    ),
    "the last key of a block is left out": (
        "attention.cpp",
        "for (int j = 0; j < keys; j++) {\n          const float *value",
        "for (int j = 0; j < keys - (keys == BLOCK); j++) {\n          const float *value",
    ),
    "base two is taken for e": ("attend.h", "job.scale * LOG2_E", "job.scale"),
}

X86_MUTANTS = {
    "the second group gets the first one's scale": (
        "unpack_avx512.h",
        "tables.latent[row[scale_at(group + 1)]]",
        "tables.latent[row[scale_at(group)]]",
        Isa.AVX512,
    ),
    "rope subnormals lose their hidden zero": (
        "unpack_avx512.h",
        "bits = _mm512_mask_permutexvar_epi32(bits, is_subnormal, magnitude, small);",
        "(void)is_subnormal, (void)small;",
        Isa.AVX512,
    ),
    "weights keep eight bits": (
        "attention_amx.cpp",
        "rounded(_mm512_sub_ps(weights[i], upper))",
        "_mm512_setzero_ps()",
        Isa.AMX,
    ),
    "even and odd dims change places": (
        "attention_amx.cpp",
        "in_order_[d + 2 * i] = from[d + i];",
        "in_order_[d + 2 * i] = from[d + TILE + i];",
        Isa.AMX,
    ),
}


@pytest.fixture
def mutated(tmp_path, monkeypatch):
    """Makes native run the portable path built from the sources with one text replaced."""

    def mutate(part: str, file: str, old: str, new: str, isa: Isa = Isa.PORTABLE) -> None:
        if isa not in load().supported:
            pytest.skip(f"this processor has no {isa.value}")
        folder = tmp_path / "src"
        shutil.copytree(build.SOURCES, folder)
        source = (folder / file).read_text()
        assert source.count(old) == 1, f"{file} has {old!r} {source.count(old)} times, not once"
        (folder / file).write_text(source.replace(old, new))
        support, *portable = build.PORTABLE_UNITS
        every = (*portable, *build.X86_UNITS)
        units = [each for each in every if each.isa == isa.value and each.source.startswith(part)]
        monkeypatch.setattr(build, "SOURCES", folder)
        monkeypatch.setattr(build, "units", lambda: [support, *units])
        monkeypatch.setattr(build, "COMMON_FLAGS", (*build.COMMON_FLAGS, "-O0", "-w"))
        build.build(build.find_compiler(), tmp_path / "mutant.so")
        library = Library(ctypes.CDLL(str(tmp_path / "mutant.so")), (isa,))
        monkeypatch.setattr(native, "load", lambda: library)

    return mutate


@functools.cache
def codec_cases():
    """Values with their rows, and rows with their unpacked values: a short set by golden."""
    random = random_values(150, torch.Generator().manual_seed(20))
    values = torch.cat([random, *edges().values()])
    rows = {scales: golden.quantise(values, scales) for scales in ("amax", "mse")}
    packed = torch.cat([every_product(), *rows.values()])
    packed[100:110, :256] = 0x9A
    return values, rows, packed, [golden.dequantise(packed, dtype) for dtype in BITS]


def codec_agrees() -> bool:
    """The tests of test_native_codec, in short."""
    values, rows, packed, unpacked = codec_cases()
    return all(
        torch.equal(native.quantise(values, scales), want) for scales, want in rows.items()
    ) and all(same_bits(native.dequantise(packed, want.dtype), want) for want in unpacked)


def attention_agrees() -> bool:
    """The tests of test_attention, in short."""
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
    return is_near and torch.allclose(got.lse.double(), want.lse, rtol=1e-5)


def test_the_checks_pass_without_a_mutation(monkeypatch):
    portable = Library(load().handle, (Isa.PORTABLE,))
    monkeypatch.setattr(native, "load", lambda: portable)

    assert codec_agrees()
    assert attention_agrees()


@pytest.mark.parametrize("mutant", CODEC_MUTANTS)
def test_a_codec_with_a_broken_rule_is_caught(mutated, mutant):
    mutated("codec", *CODEC_MUTANTS[mutant])

    assert not codec_agrees()


@pytest.mark.parametrize("mutant", ATTENTION_MUTANTS)
def test_attention_with_a_broken_rule_is_caught(mutated, mutant):
    mutated("attention", *ATTENTION_MUTANTS[mutant])

    assert not attention_agrees()


@pytest.mark.parametrize("mutant", X86_MUTANTS)
def test_a_path_of_its_own_with_a_broken_rule_is_caught(mutated, mutant):
    is_attention = X86_MUTANTS[mutant][-1] is Isa.AMX

    mutated("attention" if is_attention else "codec", *X86_MUTANTS[mutant])

    assert not (attention_agrees() if is_attention else codec_agrees())
