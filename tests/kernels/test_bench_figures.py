"""What `./tools/bench kernels` prints: a figure says what was compared, and NaN never meets one."""

import math
from types import SimpleNamespace

import pytest

from benches.kernels import codec, emulation
from nvfp4 import golden, native
from nvfp4.native import Isa
from sparse_mla import emulated, reference, verify


def test_one_nan_among_attentions_outputs_misses_its_figure(monkeypatch):
    real, best = native.sparse_mla, codec.load().supported[-1]
    calls = []

    def nan_at_first(*arguments):
        attended = real(*arguments)
        calls.append(arguments)
        if len(calls) == 1:
            attended.out[1, 2, 3] = math.nan
        return attended

    monkeypatch.setattr(codec, "CACHE_ROWS", 64)
    monkeypatch.setattr(codec, "SLOTS", 1000)
    monkeypatch.setattr(codec, "load", lambda: SimpleNamespace(supported=(best,)))
    monkeypatch.setattr(native, "sparse_mla", nan_at_first)

    figure = codec.attention_error()

    assert len(calls) > 1
    assert figure.value == math.inf
    assert not figure.ok
    assert figure.note == f"{best.value}, 8 heads, torch.float32 queries"


@pytest.mark.parametrize("spoilt", ["fused", "alone"])
def test_one_nan_among_fused_outputs_misses_their_figure(monkeypatch, spoilt):
    spoilt_steps = []

    def reference_with_one_nan(step, _):
        step.out.copy_(reference.decode(step)[0])
        if (step.jobs is not None) == (spoilt == "fused") and not spoilt_steps:
            spoilt_steps.append(step)
            step.out[0, 1, 2] = math.nan
        return SimpleNamespace(loaded_bytes=verify.loaded_bytes(step))

    monkeypatch.setattr(emulated, "decode", reference_with_one_nan)

    figure = emulation.fusion_figures()[0]

    assert figure.name == "fused_against_unfused"
    assert figure.value == math.inf
    assert not figure.ok


@pytest.fixture
def two_paths(monkeypatch):
    """Chunks of eight rows, two paths that are golden itself, the slower compared in every other
    chunk."""
    paths = SimpleNamespace(supported=(Isa.PORTABLE, Isa.AMX))
    for name, value in (("CHUNK", 8), ("OTHERS_SHARE", 2), ("load", lambda: paths)):
        monkeypatch.setattr(codec, name, value)
    monkeypatch.setattr(
        native, "quantise", lambda values, scales, **_: golden.quantise(values, scales)
    )
    monkeypatch.setattr(native, "dequantise", lambda rows, **_: golden.dequantise(rows))


def test_equality_says_how_many_rows_each_path_was_compared_on(two_paths):
    quantised, searched, dequantised = codec.equality(20)

    assert quantised.note == "of 20, with amx; 12 of them with portable too"
    assert searched.note == "of 8, with amx; 8 of them with portable too"
    assert dequantised.note == quantised.note
    assert [figure.value for figure in (quantised, searched, dequantised)] == [0, 0, 0]


def test_a_row_that_is_wrong_on_two_paths_is_one_wrong_row(two_paths, monkeypatch):
    def first_row_is_wrong(values, scales, **_):
        packed = golden.quantise(values, scales)
        packed[0, 0] ^= 1
        return packed

    monkeypatch.setattr(native, "quantise", first_row_is_wrong)
    monkeypatch.setattr(
        native, "dequantise", lambda rows, **_: golden.dequantise(first_row_lost(rows))
    )

    figures = codec.equality(20)

    assert [figure.value for figure in figures] == [3, 1, 3]
    assert not any(figure.ok for figure in figures)


def first_row_lost(rows):
    lost = rows.clone()
    lost[0] ^= 0x11
    return lost
