"""Sparse MLA attention over packed rows, each path against float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nvfp4 import golden, native, row
from nvfp4.native import Chosen, Execution
from nvfp4.native.library import load

SCALE = 1 / 24
TOLERANCE = 1e-5
"""Relative L2 error of a head's output. Float32 sums of some thousand products leave 3e-6 of it,
two bfloat16 parts of queries and weights (AMX) 6e-6."""
HEADS = [1, 8, 16, 17, 40, 128]


@pytest.fixture(scope="module")
def packed():
    generator = torch.Generator().manual_seed(10)
    channels = torch.randn(row.WIDTH, generator=generator).mul(0.5).exp()
    return golden.quantise(torch.randn(700, row.WIDTH, generator=generator) * channels)


def asked(heads, tokens=2, dtype=torch.float32, seed=11):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(tokens, heads, row.WIDTH, generator=generator).to(dtype)


def picked(rows, tokens=2, slots=300, seed=12):
    """Random rows, a tenth of the slots empty."""
    generator = torch.Generator().manual_seed(seed)
    indices = torch.randint(0, rows, (tokens, slots), dtype=torch.int32, generator=generator)
    indices[torch.rand(indices.shape, generator=generator) < 0.1] = -1
    return indices


def error_of(got, want):
    """The worst head's relative L2 error."""
    return float(((got.out - want.out).norm(dim=-1) / want.out.norm(dim=-1)).max())


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_output_and_log_sum_exp_are_those_of_float64(packed, isa, heads, dtype):
    queries, chosen = asked(heads, dtype=dtype), Chosen(picked(len(packed)))

    got = native.sparse_mla(packed, queries, chosen, SCALE, execution=Execution(isa))

    want = golden.sparse_mla(packed, queries, chosen, SCALE)
    assert error_of(got, want) < TOLERANCE
    torch.testing.assert_close(got.lse.double(), want.lse, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("slots", [1, 2, 11, 12, 13, 47, 48, 49, 63, 64, 65, 127, 128, 129])
def test_any_number_of_rows_fits(packed, isa, slots):
    """Both sides of every block and tile edge."""
    queries, chosen = asked(16), Chosen(picked(len(packed), slots=slots).clamp(min=0))

    got = native.sparse_mla(packed, queries, chosen, SCALE, execution=Execution(isa))

    assert error_of(got, golden.sparse_mla(packed, queries, chosen, SCALE)) < TOLERANCE


def test_one_row_comes_back_exactly(packed, isa):
    chosen = Chosen(torch.tensor([[-1, 5, -1], [7, -1, -1]], dtype=torch.int32))

    got = native.sparse_mla(packed, asked(9), chosen, SCALE, execution=Execution(isa))

    values = golden.dequantise(packed)[[5, 7], None, : row.LATENT]
    assert torch.equal(got.out, values.expand(2, 9, row.LATENT))


def test_a_token_without_rows_gives_zeros(packed, isa):
    indices = picked(len(packed))
    indices[1] = -1

    got = native.sparse_mla(packed, asked(16), Chosen(indices), SCALE, execution=Execution(isa))

    assert torch.equal(got.out[1], torch.zeros(16, row.LATENT))
    assert (got.lse[1] == -torch.inf).all()
    assert got.lse[0].isfinite().all()


def test_no_slots_at_all_give_zeros(packed, isa):
    chosen = Chosen(torch.empty(2, 0, dtype=torch.int32))

    got = native.sparse_mla(packed, asked(8), chosen, SCALE, execution=Execution(isa))

    assert not got.out.any()
    assert (got.lse == -torch.inf).all()


def test_slots_past_a_tokens_count_are_not_looked_at(packed, isa):
    indices, counts = picked(len(packed), 3), torch.tensor([300, 0, 33], dtype=torch.int32)
    want = golden.sparse_mla(packed, asked(16, 3), Chosen(indices, counts), SCALE)
    indices[1:, 33:] = 10**6

    chosen = Chosen(indices, counts)
    got = native.sparse_mla(packed, asked(16, 3), chosen, SCALE, execution=Execution(isa))

    assert (
        error_of(
            native.Attended(got.out[[0, 2]], got.lse), golden.Attended(want.out[[0, 2]], want.lse)
        )
        < TOLERANCE
    )
    assert not got.out[1].any()


def test_a_sink_takes_weight_and_gives_nothing(packed, isa):
    queries, indices = asked(24), picked(len(packed))
    indices[1] = -1
    sinks = torch.linspace(-8, 12, 24)

    got = native.sparse_mla(packed, queries, Chosen(indices), SCALE, sinks, Execution(isa))

    want = golden.sparse_mla(packed, queries, Chosen(indices), SCALE, sinks)
    parts = (native.Attended(each.out[:1], each.lse[:1]) for each in (got, want))
    assert error_of(*parts) < TOLERANCE
    torch.testing.assert_close(got.lse.double(), want.lse, rtol=1e-6, atol=1e-5)
    assert not got.out[1].any()
    assert torch.equal(got.lse[1], sinks)
    without = golden.sparse_mla(packed, queries, Chosen(indices), SCALE)
    assert (want.out[0, -1].norm() / without.out[0, -1].norm()) < 0.1


def test_an_absent_sink_is_one_of_minus_infinity(packed, isa):
    queries, chosen = asked(16), Chosen(picked(len(packed)))
    none = torch.full((16,), -torch.inf)

    with_none = native.sparse_mla(packed, queries, chosen, SCALE, none, Execution(isa))

    without = native.sparse_mla(packed, queries, chosen, SCALE, None, Execution(isa))
    assert torch.equal(with_none.out, without.out)
    assert torch.equal(with_none.lse, without.lse)


def test_scores_that_keep_rising_are_rescaled(packed, isa):
    """Later rows score ever higher, by far more than the running maximum may be stale."""
    queries = asked(16, 1) * 6
    scores = (queries[0, 0] @ golden.dequantise(packed).T).argsort()
    chosen = Chosen(scores.int()[None].contiguous())

    got = native.sparse_mla(packed, queries, chosen, 1.0, execution=Execution(isa))

    want = golden.sparse_mla(packed, queries, chosen, 1.0)
    assert (want.lse > 300).any()
    # Scores of 300 have float32 steps of 3e-5, which weights inherit.
    assert error_of(got, want) < 2e-4


def test_a_row_of_nan_spoils_its_tokens_and_no_other(packed, isa):
    rows = packed.clone()
    rows[3, row.scale_byte(20)] = row.E4M3_NAN_BYTE
    indices = picked(len(packed)).clamp(min=4)
    indices[1, 140] = 3

    got = native.sparse_mla(rows, asked(16), Chosen(indices), SCALE, execution=Execution(isa))

    assert got.out[1].isnan().all()
    assert got.lse[1].isnan().all()
    assert got.out[0].isfinite().all()


def test_an_empty_slot_loads_no_row(packed, isa):
    """The row before the cache's first is NaN: reading it for -1 would show."""
    pool = torch.cat([packed[:1], packed])
    pool[0, 320:] = row.E4M3_NAN_BYTE
    pool[0, 256:320] = row.E4M3_NAN_BYTE

    chosen = Chosen(picked(len(packed)))
    got = native.sparse_mla(pool[1:], asked(16), chosen, SCALE, execution=Execution(isa))

    assert got.out.isfinite().all()


def test_parts_merge_by_their_log_sum_exp(packed, isa):
    queries, indices = asked(16), picked(len(packed))
    execution = Execution(isa)

    halves = [
        native.sparse_mla(packed, queries, Chosen(part.contiguous()), SCALE, None, execution)
        for part in indices.split(100, dim=1)
    ]

    lse = torch.logsumexp(torch.stack([half.lse for half in halves]), dim=0)
    merged = sum(half.out * torch.exp(half.lse - lse)[..., None] for half in halves)
    want = golden.sparse_mla(packed, queries, Chosen(indices), SCALE)
    assert error_of(native.Attended(merged, lse), want) < TOLERANCE


@pytest.mark.parametrize(("tokens", "heads"), [(1, 128), (3, 40), (5, 16)])
def test_threads_change_no_bit(packed, isa, tokens, heads):
    queries, chosen = asked(heads, tokens), Chosen(picked(len(packed), tokens, slots=700))

    one, three = (
        native.sparse_mla(packed, queries, chosen, SCALE, None, Execution(isa, threads))
        for threads in (1, 3)
    )

    assert torch.equal(one.out, three.out)
    assert torch.equal(one.lse, three.lse)


@given(
    st.integers(1, 3),
    st.integers(1, 40),
    st.integers(0, 90),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_any_shape_agrees_with_float64(tokens, heads, slots, seed, has_sinks):
    generator = torch.Generator().manual_seed(seed)
    rows = golden.quantise(torch.randn(20, row.WIDTH, generator=generator))
    indices = torch.randint(-1, 20, (tokens, slots), dtype=torch.int32, generator=generator)
    counts = torch.randint(0, slots + 1, (tokens,), dtype=torch.int32, generator=generator)
    queries = torch.randn(tokens, heads, row.WIDTH, generator=generator)
    sinks = torch.randn(heads, generator=generator) if has_sinks else None
    chosen = Chosen(indices, counts)

    want = golden.sparse_mla(rows, queries, chosen, SCALE, sinks)

    for isa in load().supported:
        got = native.sparse_mla(rows, queries, chosen, SCALE, sinks, Execution(isa))
        # Weights keep 17 bits on AMX and values reach 5.
        torch.testing.assert_close(got.out.double(), want.out, rtol=0, atol=6e-5)
        torch.testing.assert_close(got.lse.double(), want.lse, rtol=1e-6, atol=1e-5)
