"""Every line of the README's table, on golden and each native path; and that lines can fail."""

import math

import numpy as np
import pytest
import torch

from benches.kernels.rows import edges, random_values
from nvfp4 import golden, native, row
from nvfp4.native import Execution
from tests.libs.nvfp4 import by_the_table

NAN, INF = math.nan, math.inf


def one_group(*values: float) -> torch.Tensor:
    """A row [1, 576] with these values in front and ones elsewhere in its first group."""
    filled = torch.zeros(1, row.WIDTH)
    filled[0, : row.GROUP] = 1.0
    filled[0, : len(values)] = torch.tensor(values)
    return filled


def scale_of(packed: torch.Tensor, group: int = 0) -> int:
    return int(packed[0, row.scale_byte(group)])


def codes_of(packed: torch.Tensor) -> list[int]:
    """Codes of the first group."""
    return [int(packed[0, at // 2] >> (4 * (at % 2))) & 15 for at in range(row.GROUP)]


def a_scale_is_a_sixth_of_the_largest_magnitude(quantise, dequantise):
    assert scale_of(quantise(one_group(-9.0))) == 0x3C  # 1.5


def a_scale_rounds_to_nearest_even(quantise, dequantise):
    between = 6 * (1 + 1 / 16)  # 1.0625: halfway between 1 (0x38) and 1.125 (0x39)
    assert scale_of(quantise(one_group(between))) == 0x38
    assert scale_of(quantise(one_group(6 * (1.125 + 1 / 16)))) == 0x3A


def elements_round_to_nearest_and_ties_go_to_the_even_code(quantise, dequantise):
    values = [6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 0.26, 0.74, 1.26, 1.74, 2.6, 3.4, 5.1, 4.9]
    assert codes_of(quantise(one_group(*values))) == [
        7,
        0,
        2,
        2,
        4,
        4,
        6,
        6,
        1,
        1,
        3,
        3,
        5,
        5,
        7,
        6,
    ]


def an_element_is_multiplied_by_the_reciprocal(quantise, dequantise):
    # Divided by this scale the element is a tie; times the scale's reciprocal it lies just above.
    scale, tie = 15 / 512, 1.25
    reciprocal = np.float32(1) / np.float32(scale)
    assert np.float32(tie * scale) * reciprocal > tie
    packed = quantise(one_group(6 * scale, *[tie * scale] * 15))
    assert codes_of(packed) == [7, *[3] * 15]


def the_even_element_is_the_low_nibble(quantise, dequantise):
    packed = quantise(one_group(6.0, -3.0))
    assert int(packed[0, 0]) == 0xD7


def the_scale_of_group_s_lies_at_the_permuted_byte(quantise, dequantise):
    values = torch.zeros(1, row.WIDTH)
    for group in range(row.GROUPS):
        values[0, row.GROUP * group] = 6 * by_the_table.e4m3_value(group + 16)
    packed = quantise(values)
    for group in range(row.GROUPS):
        assert int(packed[0, 320 + 8 * (group & 3) + (group >> 2)]) == group + 16


def zeros_get_the_smallest_scale_and_keep_their_sign(quantise, dequantise):
    packed = quantise(one_group(*[0.0, -0.0] * 8))
    assert scale_of(packed) == 0x01
    assert codes_of(packed) == [0, 8] * 8
    assert math.copysign(1, float(dequantise(packed)[0, 1])) == -1


def what_rounds_to_zero_keeps_its_sign(quantise, dequantise):
    packed = quantise(one_group(-6.0, -0.1, 0.1))
    assert codes_of(packed)[:3] == [15, 8, 0]


def tiny_groups_become_zeros(quantise, dequantise):
    packed = quantise(one_group(*[1e-8] * 16))
    assert scale_of(packed) == 0x01
    assert codes_of(packed) == [0] * 16


def too_large_values_saturate_at_2688(quantise, dequantise):
    values = dequantise(quantise(one_group(1e5, -3e38, 2688.0)))
    assert values[0, :3].tolist() == [2688, -2688, 2688]


def an_infinity_saturates_and_leaves_its_group_finite(quantise, dequantise):
    packed = quantise(one_group(INF, -INF, 1000.0))
    assert scale_of(packed) == 0x7E
    assert dequantise(packed)[0, :4].tolist() == [2688, -2688, 896, 0]


def a_nan_makes_its_group_nan_and_no_other(quantise, dequantise):
    packed = quantise(one_group(1.0, NAN, INF))
    assert scale_of(packed) == 0x7F
    assert packed[0, :8].tolist() == [0] * 8
    values = dequantise(packed)
    assert values[0, :16].isnan().all()
    assert not values[0, 16:].isnan().any()


def rope_is_unscaled_e4m3(quantise, dequantise):
    values = torch.zeros(1, row.WIDTH)
    given = [1.0625, 1.1875, -0.0, 2.0**-10, 3 * 2.0**-10, 449, 1e9, INF, -INF, NAN, -NAN]
    values[0, row.LATENT : row.LATENT + len(given)] = torch.tensor(given)
    packed = quantise(values)
    want = [0x38, 0x3A, 0x80, 0x00, 0x02, 0x7E, 0x7E, 0x7E, 0xFE, 0x7F, 0x7F]
    assert packed[0, 256 : 256 + len(given)].tolist() == want


def any_scale_byte_is_read_as_e4m3_and_nan_is_the_quiet_one(quantise, dequantise):
    packed = torch.zeros(3, row.ROW_BYTES, dtype=torch.uint8)
    packed[:, 0] = 0xA1  # codes 1 and 10: 0.5 and -1
    for at, byte in enumerate((0xB8, 0xFF, 0x7F)):  # -1, NaN, NaN
        packed[at, row.scale_byte(0)] = byte
        packed[at, 256] = byte
    values = dequantise(packed)
    assert values[0, [0, 1, 512]].tolist() == [-0.5, 1, -1]
    assert (values[1:, [0, 1, 512]].view(torch.int32) == 0x7FC00000).all()


def a_row_is_what_the_definition_says(quantise, dequantise):
    values = torch.cat([random_values(12, torch.Generator().manual_seed(4)), *edges().values()])
    packed = quantise(values)
    for given, got in zip(values.numpy(), packed.numpy(), strict=True):
        assert got.tobytes() == by_the_table.row_of(given)
    unpacked = [by_the_table.values_of(got.tobytes()) for got in packed.numpy()]
    np.testing.assert_array_equal(dequantise(packed).numpy(), np.array(unpacked, np.float32))


POLICY = (
    a_scale_is_a_sixth_of_the_largest_magnitude,
    a_scale_rounds_to_nearest_even,
    elements_round_to_nearest_and_ties_go_to_the_even_code,
    an_element_is_multiplied_by_the_reciprocal,
    the_even_element_is_the_low_nibble,
    the_scale_of_group_s_lies_at_the_permuted_byte,
    zeros_get_the_smallest_scale_and_keep_their_sign,
    what_rounds_to_zero_keeps_its_sign,
    tiny_groups_become_zeros,
    too_large_values_saturate_at_2688,
    an_infinity_saturates_and_leaves_its_group_finite,
    a_nan_makes_its_group_nan_and_no_other,
    rope_is_unscaled_e4m3,
    any_scale_byte_is_read_as_e4m3_and_nan_is_the_quiet_one,
    a_row_is_what_the_definition_says,
)


@pytest.mark.parametrize("line", POLICY, ids=lambda line: line.__name__)
def test_golden_keeps_each_line_of_the_policy(line):
    line(golden.quantise, golden.dequantise)


@pytest.mark.parametrize("line", POLICY, ids=lambda line: line.__name__)
def test_each_native_path_keeps_each_line_of_the_policy(line, isa):
    execution = Execution(isa)

    line(
        lambda values: native.quantise(values, execution=execution),
        lambda packed: native.dequantise(packed, execution=execution),
    )


@pytest.mark.engine
def test_a_scale_search_takes_the_first_of_the_best_candidates():
    random = random_values(64, torch.Generator().manual_seed(5))
    values = torch.cat([random, *edges().values()])[:, : row.LATENT]
    groups = values[values.isfinite().all(dim=1)].reshape(-1, row.GROUPS, row.GROUP)

    chosen = golden.searched_scales(groups)

    want = [[by_the_table.searched_scale(group) for group in each] for each in groups.numpy()]
    assert chosen.tolist() == want
    assert (chosen != golden.amax_scales(groups)).float().mean() > 0.25


def test_e4m3_bytes_are_those_of_torch_for_every_bfloat16():
    every = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()

    ours = golden.e4m3_bytes(every)

    theirs = every.to(torch.float8_e4m3fn).view(torch.uint8)
    is_nan = every.isnan()
    assert torch.equal(ours[~is_nan], theirs[~is_nan])
    assert (ours[is_nan] == 0x7F).all()
    assert (theirs[is_nan] & 0x7F == 0x7F).all()


def linear_scales(packed):
    """Scales in the order of the groups."""
    mutant = packed.clone()
    mutant[:, 320:] = packed[:, list(row.SCALE_BYTES)]
    return mutant


def swapped_nibbles(packed):
    mutant = packed.clone()
    mutant[:, :256] = (packed[:, :256] >> 4) | (packed[:, :256] << 4)
    return mutant


def lost_signs_of_zero(packed):
    mutant = packed.clone()
    for shift in (0, 4):
        is_zero = (mutant[:, :256] >> shift & 15) == 8
        mutant[:, :256] -= is_zero.to(torch.uint8) * (8 << shift)
    return mutant


def scaled_rope(packed):
    mutant = packed.clone()
    mutant[:, 256:320] = torch.where(packed[:, 256:320] & 0x78 > 8, packed[:, 256:320] - 8, 0)
    return mutant


@pytest.mark.parametrize("spoil", [linear_scales, swapped_nibbles, lost_signs_of_zero, scaled_rope])
def test_rows_written_by_another_rule_break_the_policy(spoil):
    broken = [line.__name__ for line in POLICY if fails(line, spoil)]

    assert "a_row_is_what_the_definition_says" in broken
    assert len(broken) > 1


def fails(line, spoil):
    try:
        line(lambda values: spoil(golden.quantise(values)), golden.dequantise)
    except AssertionError:
        return True
    return False
