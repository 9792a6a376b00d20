"""The native codec is golden's, byte for byte, on every path, type and number of threads."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benches.kernels.rows import edges, every_product, random_values
from nvfp4 import golden, native, row
from nvfp4.native import Execution
from nvfp4.native.library import load

BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.view(BITS[a.dtype]), b.view(BITS[b.dtype]))


@pytest.mark.parametrize("scales", ["amax", "mse"])
def test_random_and_edge_rows_are_quantised_as_golden_does(isa, scales):
    random = random_values(600, torch.Generator().manual_seed(6))
    values = torch.cat([random, *edges().values()])

    got = native.quantise(values, scales, execution=Execution(isa))

    assert torch.equal(got, golden.quantise(values, scales))


@pytest.mark.parametrize("dtype", list(BITS))
def test_every_product_and_random_bytes_are_dequantised_as_golden_does(isa, dtype):
    generator = torch.Generator().manual_seed(7)
    random = torch.randint(0, 256, (400, row.ROW_BYTES), dtype=torch.uint8, generator=generator)
    packed = torch.cat([every_product(), random])

    got = native.dequantise(packed, dtype, execution=Execution(isa))

    assert same_bits(got, golden.dequantise(packed, dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bit_values_lose_nothing(isa, dtype):
    packed = every_product()

    exact = golden.dequantise(packed)
    got = native.dequantise(packed, dtype, execution=Execution(isa))

    assert torch.equal(got.float().nan_to_num(nan=9e9), exact.nan_to_num(nan=9e9))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scales", ["amax", "mse"])
def test_sixteen_bit_inputs_are_quantised_as_their_float32_values(isa, dtype, scales):
    every = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(dtype)
    generator = torch.Generator().manual_seed(8)
    mixed = torch.cat([every, every[torch.randperm(2**16, generator=generator)]])
    values = mixed[: 227 * row.WIDTH].reshape(-1, row.WIDTH).clone()

    got = native.quantise(values, scales, execution=Execution(isa))

    assert torch.equal(got, golden.quantise(values.float(), scales))


@given(
    st.lists(st.floats(width=32), min_size=row.GROUP, max_size=row.GROUP),
    st.sampled_from(["amax", "mse"]),
)
@settings(max_examples=60, deadline=None)
def test_any_group_of_floats_is_quantised_as_golden_does(group, scales):
    values = torch.tensor(group).repeat(row.WIDTH // row.GROUP)[None].clone()

    want = golden.quantise(values, scales)

    for isa in load().supported:
        assert torch.equal(native.quantise(values, scales, execution=Execution(isa)), want), isa


@given(st.integers(0, 2**32 - 1), st.integers(-20, 20))
@settings(max_examples=40, deadline=None)
def test_quantising_what_was_dequantised_changes_no_value(seed, exponent):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(3, row.WIDTH, generator=generator) * 2.0**exponent

    once = native.dequantise(native.quantise(values))
    largest = once[:, : row.LATENT].reshape(3, row.GROUPS, row.GROUP).abs().amax(dim=-1)
    twice = native.dequantise(native.quantise(once))

    # A group whose largest value did not round to code 7 gets another scale the second time.
    scales = golden.group_scales(native.quantise(values))
    is_full = (largest == 6 * scales).repeat_interleave(row.GROUP, dim=1)
    assert torch.equal(once[:, : row.LATENT][is_full], twice[:, : row.LATENT][is_full])
    assert torch.equal(once[:, row.LATENT :], twice[:, row.LATENT :])


@pytest.mark.parametrize("dtype", list(BITS))
def test_large_results_are_the_same_as_small_ones(isa, dtype):
    """Above some size the AVX-512 path writes past the caches, where the address allows it."""
    packed = native.quantise(torch.randn(5000, row.WIDTH))

    whole = native.dequantise(packed, dtype, execution=Execution(isa, threads=1))

    assert whole.nbytes > 4 << 20
    assert whole.data_ptr() % 64 == 0
    parts = [native.dequantise(part, dtype, execution=Execution(isa)) for part in packed.split(700)]
    assert same_bits(whole, torch.cat(parts))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_change_nothing(threads):
    values = torch.randn(5003, row.WIDTH)
    execution = Execution(threads=threads)

    packed = native.quantise(values, execution=execution)

    assert torch.equal(packed, golden.quantise(values))
    assert torch.equal(native.dequantise(packed, execution=execution), golden.dequantise(packed))


def test_results_go_where_the_caller_says(isa):
    values = torch.randn(3, row.WIDTH)
    pool = torch.zeros(5, row.ROW_BYTES, dtype=torch.uint8)
    unpacked = torch.full((5, row.WIDTH), 7.0)

    native.quantise(values, out=pool[1:4], execution=Execution(isa))
    native.dequantise(pool[1:4], out=unpacked[1:4], execution=Execution(isa))

    assert torch.equal(pool[1:4], golden.quantise(values))
    assert not pool[[0, 4]].any()
    assert torch.equal(unpacked[1:4], golden.dequantise(pool[1:4]))
    assert (unpacked[[0, 4]] == 7).all()


def test_no_rows_give_no_rows(isa):
    execution = Execution(isa)

    packed = native.quantise(torch.empty(0, row.WIDTH), execution=execution)

    assert packed.shape == (0, row.ROW_BYTES)
    assert native.dequantise(packed, execution=execution).shape == (0, row.WIDTH)


def test_flushing_subnormals_moves_no_byte(isa):
    values = torch.cat([edges()["smallest subnormal"], edges()["rope subnormals and ties"]])
    want = golden.quantise(values, "mse")

    torch.set_flush_denormal(True)
    try:
        got = native.quantise(values, "mse", execution=Execution(isa, threads=1))
        back = native.dequantise(got, execution=Execution(isa, threads=1))
    finally:
        torch.set_flush_denormal(False)

    assert torch.equal(got, want)
    assert torch.equal(back, golden.dequantise(want))
