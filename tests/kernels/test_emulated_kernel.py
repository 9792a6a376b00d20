"""The kernel's body on the emulator, against the float64 reference, which decodes rows by itself.

Tolerances are those of `sparse_mla.verify`, where each has its reason. Every case also checks the
bytes that were read (each used row once for each row group, an empty slot never) and that ldmatrix
met no bank conflict. The bench runs the full set; here is the short one.
"""

import math
from dataclasses import replace

import pytest
import torch

from sparse_mla import emulated, reference, verify
from sparse_mla.errors import IndexOutOfRange
from sparse_mla.verify import Case


def run(case, blocks, seed=0):
    step = verify.make_step(case)
    counters = emulated.decode(step, blocks, seed=seed)
    assert counters.loaded_bytes == verify.loaded_bytes(step)
    assert counters.matrix_conflicts == 0
    return step


def assert_right(case, blocks, seed=0):
    step = run(case, blocks, seed)
    found = verify.difference(step)
    assert found.is_within(case.split), found


@pytest.mark.parametrize("blocks", [3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("slots", [1, 31, 32, 33, 95, 97])
def test_both_sides_of_a_stages_edge(slots, blocks):
    assert_right(Case(heads=16, slots=slots), blocks)


@pytest.mark.parametrize("blocks", [3, 8])
def test_a_full_list_with_empty_slots_at_random(blocks):
    assert_right(Case(slots=2048, empty=0.15, num_rows=4096), blocks)


@pytest.mark.parametrize("blocks", [1, 2])
def test_small_clusters_for_batches_that_fill_the_machine_by_themselves(blocks):
    assert_right(Case(slots=230, empty=0.1), blocks)


@pytest.mark.parametrize("heads", [1, 8, 12, 20, 32, 64, 96, 128])
def test_any_number_of_heads(heads):
    assert_right(Case(heads=heads, slots=70, empty=0.1), 3)


@pytest.mark.parametrize("heads", [16, 32, 64])
def test_probabilities_of_one_half(heads):
    assert_right(Case(heads=heads, slots=200, split=False), 3)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float16, torch.bfloat16])
def test_every_query_dtype(dtype):
    assert_right(Case(slots=64, query_dtype=dtype), 3)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 2**-8), (torch.float16, 2**-11)])
def test_narrow_outputs_are_the_float_output_rounded(dtype, tolerance):
    wide = run(Case(slots=40), 3)

    narrow = run(Case(slots=40, out_dtype=dtype), 3)

    # The same floats, rounded to nearest: at most one unit in the last place of each value apart.
    torch.testing.assert_close(narrow.out, wide.out.to(dtype), rtol=tolerance, atol=0)


@pytest.mark.parametrize("has_sinks", [False, True])
def test_a_token_without_rows_is_exactly_zero_and_loads_nothing(has_sinks):
    step = run(Case(slots=70, empty=1.0, has_sinks=has_sinks), 4)

    assert step.out.count_nonzero() == 0
    if has_sinks:
        torch.testing.assert_close(step.lse[0], step.sinks)
    else:
        assert bool((step.lse == -torch.inf).all())


@pytest.mark.parametrize("wrong", [1e-30, math.nan])
def test_a_token_without_rows_that_is_nearly_zero_is_not_good(wrong):
    step = run(Case(slots=70, empty=1.0), 4)
    assert verify.difference(step).is_within(split=True)

    step.out[0, 3, 7] = wrong

    assert verify.difference(step).out == math.inf


def test_sinks_take_weight_and_give_nothing():
    assert_right(Case(slots=100, has_sinks=True, tokens=2), 3)


def test_a_sink_far_above_every_score_leaves_nothing():
    step = replace(verify.make_step(Case(slots=40)), sinks=torch.full((16,), 300.0))

    emulated.decode(step, 3)

    assert step.out.abs().max() < 1e-30
    torch.testing.assert_close(step.lse, torch.full((1, 16), 300.0))


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_queries_of_any_size_keep_their_bits(size):
    step = verify.make_step(Case(slots=40))
    step = replace(step, query=(step.query.float() * size).bfloat16(), scale=step.scale / size)

    emulated.decode(step, 3)

    assert verify.difference(step).is_within(split=True)


@pytest.mark.parametrize("seed", range(1, 6))
def test_no_order_of_warps_lanes_and_copies_changes_a_bit(seed):
    case = Case(heads=20, slots=150, empty=0.2, has_sinks=True)
    ordered = run(case, 3)

    shuffled = run(case, 3, seed)

    assert torch.equal(ordered.out, shuffled.out)
    assert torch.equal(ordered.lse, shuffled.lse)


def test_a_nan_in_a_chosen_row_reaches_its_token_alone():
    step = verify.make_step(Case(tokens=2, slots=40))
    step.indices[1] = step.indices[1].clamp(min=1)
    step.indices[0, 3] = 0
    step.rows[0, 320] = 0x7F

    emulated.decode(step, 3)

    assert bool(step.out[0, :, :16].isnan().all())
    assert not bool(step.out[1].isnan().any())


def test_an_index_that_nobody_checked_turns_its_token_into_nan():
    step = verify.make_step(Case(tokens=2, slots=40))
    step.indices[0, 5] = len(step.rows)
    with pytest.raises(IndexOutOfRange, match="expected -1"):
        emulated.decode(step, 3)

    emulated.decode(step, 3, is_checked=False)

    assert bool(step.out[0].isnan().all())
    out, _ = reference.attend(step.query[1:], step.rows, step.indices[1:], step.scale)
    torch.testing.assert_close(step.out[1:].double(), out, rtol=1e-4, atol=1e-5)
