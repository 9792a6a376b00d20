"""Whatever an argument is wrong in, golden and native say what was expected and what was given."""

import pytest
import torch

from nvfp4 import errors, golden, native, row
from nvfp4.native import Chosen, Execution, Isa
from nvfp4.native.library import load

SIDES = [golden, native]


def odd_address(shape, dtype, offset=1):
    """A contiguous tensor that starts `offset` bytes past a multiple of 64."""
    size = torch.tensor([], dtype=dtype).element_size()
    count = torch.Size(shape).numel()
    raw = torch.zeros(count * size + 128, dtype=torch.uint8)
    start = -raw.data_ptr() % 64 + offset
    return torch.frombuffer(raw.numpy().data, dtype=dtype, count=count, offset=start).reshape(shape)


VALUES = {
    "float64": (torch.zeros(2, 576).double(), errors.WrongDtype, "torch.float64"),
    "575 wide": (torch.zeros(2, 575), errors.WrongShape, r"\[n, 576\], got \[2, 575\]"),
    "one dimension": (torch.zeros(576), errors.WrongShape, r"got \[576\]"),
    "transposed": (torch.zeros(576, 2).T, errors.NotContiguous, r"\[576, 1\], got \[1, 2\]"),
    "odd address": (odd_address((2, 576), torch.float32, 2), errors.Misaligned, "multiple of 4"),
}


@pytest.mark.parametrize("side", SIDES, ids=["golden", "native"])
@pytest.mark.parametrize("case", VALUES)
def test_quantise_refuses(side, case):
    values, error, says = VALUES[case]

    with pytest.raises(error, match=says):
        side.quantise(values)


ROWS = {
    "int8": (torch.zeros(2, 352, dtype=torch.int8), errors.WrongDtype, "uint8, got torch.int8"),
    "of 288 bytes": (torch.zeros(2, 288, dtype=torch.uint8), errors.WrongShape, "352"),
    "every second": (torch.zeros(4, 352, dtype=torch.uint8)[::2], errors.NotContiguous, "704"),
    "odd address": (odd_address((2, 352), torch.uint8, 8), errors.Misaligned, "multiple of 16"),
}


@pytest.mark.parametrize("side", SIDES, ids=["golden", "native"])
@pytest.mark.parametrize("case", ROWS)
def test_dequantise_refuses(side, case):
    rows, error, says = ROWS[case]

    with pytest.raises(error, match=says):
        side.dequantise(rows)


@pytest.mark.parametrize("side", SIDES, ids=["golden", "native"])
def test_results_of_other_types_are_refused(side):
    rows = torch.zeros(1, row.ROW_BYTES, dtype=torch.uint8)

    with pytest.raises(errors.WrongDtype, match=r"got torch\.int32"):
        side.dequantise(rows, torch.int32)


@pytest.mark.parametrize("side", SIDES, ids=["golden", "native"])
def test_another_way_to_choose_scales_is_refused(side):
    with pytest.raises(errors.WrongValue, match="'amax' or 'mse', got 'max'"):
        side.quantise(torch.zeros(1, 576), "max")


def test_a_tensor_elsewhere_is_refused():
    with pytest.raises(errors.WrongDevice, match="on meta"):
        native.quantise(torch.zeros(1, 576, device="meta"))


@pytest.mark.parametrize(
    ("out", "error"),
    [
        (torch.zeros(2, 352, dtype=torch.uint8), errors.WrongShape),
        (torch.zeros(3, 352, dtype=torch.int8), errors.WrongDtype),
        (odd_address((3, 352), torch.uint8), errors.Misaligned),
    ],
)
def test_a_place_for_rows_that_does_not_fit_is_refused(out, error):
    with pytest.raises(error, match="out"):
        native.quantise(torch.zeros(3, 576), out=out)


def test_a_place_for_values_of_another_type_is_refused():
    rows = torch.zeros(3, row.ROW_BYTES, dtype=torch.uint8)

    with pytest.raises(errors.WrongDtype, match=r"bfloat16, got torch\.float32"):
        native.dequantise(rows, torch.bfloat16, out=torch.zeros(3, 576))


def good():
    return {
        "rows": torch.zeros(8, row.ROW_BYTES, dtype=torch.uint8),
        "queries": torch.zeros(2, 8, row.WIDTH),
        "chosen": Chosen(torch.zeros(2, 4, dtype=torch.int32)),
        "scale": 0.1,
    }


def indices(*values):
    return Chosen(torch.tensor(values, dtype=torch.int32).repeat(2, 1))


def counted(*values):
    return Chosen(torch.zeros(2, 4, dtype=torch.int32), torch.tensor(values, dtype=torch.int32))


ATTENTION = {
    "float16 queries": ({"queries": good()["queries"].half()}, errors.WrongDtype, "float16"),
    "narrow queries": ({"queries": torch.zeros(2, 8, 512)}, errors.WrongShape, "576"),
    "129 heads": ({"queries": torch.zeros(2, 129, 576)}, errors.WrongShape, "1 to 128"),
    "no heads": ({"queries": torch.zeros(2, 0, 576)}, errors.WrongShape, "1 to 128"),
    "int64 indices": ({"chosen": Chosen(torch.zeros(2, 4).long())}, errors.WrongDtype, "int64"),
    "other tokens": ({"chosen": Chosen(torch.zeros(3, 4).int())}, errors.WrongShape, r"\[2, slots"),
    "index too large": ({"chosen": indices(0, 7, 8)}, errors.IndexOutOfRange, "0 to 7, got 8 at"),
    "index too small": ({"chosen": indices(-1, -2)}, errors.IndexOutOfRange, "got -2 at token 0"),
    "counts too large": ({"chosen": counted(4, 5)}, errors.CountOutOfRange, "0 to 4, got 5"),
    "counts below none": ({"chosen": counted(0, -1)}, errors.CountOutOfRange, "got -1 at token 1"),
    "counts of others": ({"chosen": counted(1, 1, 1)}, errors.WrongShape, r"counts .* \[2\]"),
    "a scale of NaN": ({"scale": float("nan")}, errors.WrongValue, "finite"),
    "a scale beyond float32": ({"scale": -1e300}, errors.WrongValue, "finite float32, got -1e"),
    "sinks of others": ({"sinks": torch.zeros(9)}, errors.WrongShape, r"sinks of shape \[8\]"),
    "an infinite sink": (
        {"sinks": torch.tensor([0.0] * 7 + [torch.inf])},
        errors.WrongValue,
        "sinks finite or -inf, got inf",
    ),
    "a sink of NaN": ({"sinks": torch.full((8,), torch.nan)}, errors.WrongValue, "got nan"),
    "bfloat16 sinks": ({"sinks": torch.zeros(8).bfloat16()}, errors.WrongDtype, "sinks"),
    "rows of 288": ({"rows": torch.zeros(8, 288).byte()}, errors.WrongShape, "352"),
    "rows askew": ({"rows": odd_address((8, 352), torch.uint8)}, errors.Misaligned, "16"),
}


@pytest.mark.parametrize("side", SIDES, ids=["golden", "native"])
@pytest.mark.parametrize("case", ATTENTION)
def test_attention_refuses(side, case):
    change, error, says = ATTENTION[case]

    with pytest.raises(error, match=says):
        side.sparse_mla(**(good() | change))


def test_an_index_out_of_range_is_named_with_its_place():
    chosen = Chosen(torch.tensor([[0, -1, 3], [1, 2, 99]], dtype=torch.int32))

    with pytest.raises(errors.IndexOutOfRange) as caught:
        native.sparse_mla(**(good() | {"chosen": chosen}))

    assert (caught.value.token, caught.value.slot, caught.value.index) == (1, 2, 99)


def test_instructions_that_the_processor_lacks_are_refused(monkeypatch):
    library = load()
    poorer = type(library)(library.handle, (Isa.PORTABLE,))
    monkeypatch.setattr(native, "load", lambda: poorer)

    with pytest.raises(errors.IsaUnsupported, match=r"\(portable\), got 'avx512'"):
        native.quantise(torch.zeros(1, 576), execution=Execution(Isa.AVX512))


def test_no_threads_are_refused():
    with pytest.raises(errors.WrongValue, match="at least 1, got 0"):
        native.quantise(torch.zeros(1, 576), execution=Execution(threads=0))
