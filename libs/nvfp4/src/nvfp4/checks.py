"""Checks at the edge of the library: whatever passes here, the codecs may read without looking.

Golden and native functions check alike, so an argument that one refuses the other refuses too.
"""

from collections.abc import Sequence

import torch

from nvfp4 import errors, row

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
MAX_HEADS = 128


def memory(
    name: str,
    tensor: torch.Tensor,
    dtypes: Sequence[torch.dtype],
    shape: Sequence[int | str],
    alignment: int = 1,
) -> None:
    """Dtype, shape (a string stands for any size), device, contiguity and address of one tensor."""
    if tensor.dtype not in dtypes:
        raise errors.WrongDtype(name, " or ".join(str(each) for each in dtypes), tensor.dtype)
    sizes = tuple(tensor.shape)
    if len(sizes) != len(shape) or any(
        wanted != size and not isinstance(wanted, str)
        for wanted, size in zip(shape, sizes, strict=True)
    ):
        expected = "[" + ", ".join(str(wanted) for wanted in shape) + "]"
        raise errors.WrongShape(name, expected, list(sizes))
    if not tensor.is_cpu:
        raise errors.WrongDevice(name, tensor.device)
    if not tensor.is_contiguous():
        dense = torch.empty(tensor.shape, device="meta").stride()
        raise errors.NotContiguous(name, list(dense), list(tensor.stride()))
    alignment = max(alignment, tensor.element_size())
    if tensor.numel() and tensor.data_ptr() % alignment:
        raise errors.Misaligned(name, alignment, tensor.data_ptr())


def values(tensor: torch.Tensor) -> None:
    """What a quantiser reads: [n, 576], float32, bfloat16 or float16."""
    memory("values", tensor, FLOATS, ("n", row.WIDTH))


def rows(tensor: torch.Tensor) -> None:
    """What a reader of rows gets: [n, 352], uint8, at a multiple of 16 bytes."""
    memory("rows", tensor, (torch.uint8,), ("n", row.ROW_BYTES), row.ROW_ALIGNMENT)


def result_dtype(dtype: torch.dtype) -> None:
    """What a row can be unpacked to."""
    if dtype not in FLOATS:
        raise errors.WrongDtype("the result", " or ".join(str(each) for each in FLOATS), dtype)


def result_values(tensor: torch.Tensor, dtype: torch.dtype, count: int) -> None:
    """Where `count` unpacked rows of `dtype` go."""
    memory("out", tensor, (dtype,), (count, row.WIDTH))


def result_rows(tensor: torch.Tensor, count: int) -> None:
    """Where `count` packed rows go."""
    memory("out", tensor, (torch.uint8,), (count, row.ROW_BYTES), row.ROW_ALIGNMENT)


def scale_choice(scales: str) -> None:
    """One of the ways to choose a group's scale."""
    if scales not in ("amax", "mse"):
        raise errors.WrongValue("scales", "'amax' or 'mse'", scales)


def queries(tensor: torch.Tensor) -> None:
    """What attention asks with: [tokens, heads, 576], float32 or bfloat16, 1 to 128 heads."""
    dtypes = (torch.float32, torch.bfloat16)
    memory("queries", tensor, dtypes, ("tokens", "heads", row.WIDTH))
    if not 1 <= tensor.shape[1] <= MAX_HEADS:
        shape = f"[tokens, 1 to {MAX_HEADS}, {row.WIDTH}]"
        raise errors.WrongShape("queries", shape, list(tensor.shape))


def chosen(indices: torch.Tensor, counts: torch.Tensor | None, tokens: int) -> None:
    """Which rows each token reads: int32 [tokens, slots], and int32 [tokens] of 0 to slots."""
    memory("indices", indices, (torch.int32,), (tokens, "slots"))
    if counts is None:
        return
    memory("counts", counts, (torch.int32,), (tokens,))
    slots = indices.shape[1]
    outside = ((counts < 0) | (counts > slots)).nonzero()
    if len(outside):
        token = int(outside[0])
        raise errors.CountOutOfRange(token, int(counts[token]), slots)


def finite(name: str, value: float) -> None:
    """A number that float32 holds: a larger one would become infinity on its way to native code."""
    if not abs(value) <= torch.finfo(torch.float32).max:
        raise errors.WrongValue(name, "a finite float32", value)


def softmax(scale: float, sinks: torch.Tensor | None, heads: int) -> None:
    """A finite score scale, and one float32 sink logit for each head: finite, or -inf for none."""
    finite("scale", scale)
    if sinks is None:
        return
    memory("sinks", sinks, (torch.float32,), (heads,))
    if not (sinks < float("inf")).all():
        raise errors.WrongValue("sinks", "finite or -inf", sinks.max().item())
