"""The host edge: whatever the kernel would read wrongly is refused here with what was expected.

Values stay on the device, since reading them back would stop the stream. An index outside the cache
and a sink that is no logit are refused where tensors are on the CPU; on a GPU they turn the tokens
that use them into NaN. Jobs and masks on a GPU are taken as `fusion.fuse` made them, for as many
tokens as the query has: a token without a job would be left unwritten.
"""

import math

import torch

from sparse_mla import row
from sparse_mla.call import Decode
from sparse_mla.errors import IndexOutOfRange, WrongDtype, WrongLayout, WrongShape, WrongValue

QUERY_DTYPES = (torch.float8_e4m3fn, torch.float16, torch.bfloat16)
OUT_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
ALIGNMENT = 16
"""Bytes: what a bulk copy and a 128-bit store need."""
MAX_JOBS = 65_535
"""The grid's y dimension."""


def flat_rows(kv_cache: torch.Tensor) -> torch.Tensor:
    """A cache [..., 352] as rows [n, 352], without a copy; an index counts rows from the first.

    Blocks may lie apart by any whole number of rows (block-major caches hold other layers' rows
    between them); those rows count too.
    """
    if kv_cache.dtype != torch.uint8:
        raise WrongDtype("kv_cache", kv_cache.dtype, [torch.uint8])
    if kv_cache.dim() < 2 or kv_cache.shape[-1] != row.ROW_BYTES:
        raise WrongShape("kv_cache", list(kv_cache.shape), f"[..., {row.ROW_BYTES}]")
    if kv_cache.data_ptr() % ALIGNMENT:
        raise WrongLayout("kv_cache", "is not aligned", f"a multiple of {ALIGNMENT} bytes")
    if kv_cache.is_contiguous():
        return kv_cache.view(-1, row.ROW_BYTES)
    *blocks, block_size, _ = kv_cache.shape
    strides = kv_cache.stride()
    apart = [stride for stride, size in zip(strides, blocks, strict=False) if size > 1]
    if strides[-2:] != (row.ROW_BYTES, 1) or len(apart) > 1 or apart[0] % row.ROW_BYTES:
        raise WrongLayout(
            "kv_cache",
            f"has strides {strides}",
            "whole rows, in blocks a whole number of rows apart",
        )
    num_rows = (math.prod(blocks) - 1) * (apart[0] // row.ROW_BYTES) + block_size
    return kv_cache.as_strided((num_rows, row.ROW_BYTES), (row.ROW_BYTES, 1))


def check_blocks(name: str, blocks: int) -> None:
    """Blocks of a cluster, as a caller asks for them."""
    if not 1 <= blocks <= row.MAX_CLUSTER_BLOCKS:
        raise WrongValue(name, blocks, f"1 to {row.MAX_CLUSTER_BLOCKS}")


def check(step: Decode) -> None:
    """Raises for whatever the kernel would read or write wrongly."""
    _check_shapes(step)
    tensors = {
        "query": step.query,
        "indices": step.indices,
        "masks": step.masks,
        "jobs": step.jobs,
        "sinks": step.sinks,
        "out": step.out,
        "lse": step.lse,
        "kv_cache": step.rows,
    }
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if tensor.device != step.query.device:
            raise WrongLayout(name, f"is on {tensor.device}", f"{step.query.device}, as the query")
        if not tensor.is_contiguous():
            raise WrongLayout(name, f"has strides {tensor.stride()}", "contiguous")
        if name in ("query", "out", "kv_cache") and tensor.data_ptr() % ALIGNMENT:
            raise WrongLayout(name, "is not aligned", f"a multiple of {ALIGNMENT} bytes")
    for name, value in (("bmm1_scale", step.scale), ("bmm2_scale", step.out_scale)):
        if not abs(value) <= torch.finfo(torch.float32).max:  # as NaN is not either
            raise WrongValue(name, value, "a finite float32, as the kernel takes it")
    if step.indices.device.type == "cpu":
        _check_values(step)


def _check_values(step: Decode) -> None:
    if step.indices.numel():
        least, most = int(step.indices.min()), int(step.indices.max())
        if least < -1 or most >= len(step.rows):
            raise IndexOutOfRange(least, most, len(step.rows))
    if step.sinks is not None and not bool((step.sinks < math.inf).all()):
        raise WrongValue("sinks", float(step.sinks.max()), "finite, or -inf for none")
    if step.jobs is not None and len(step.jobs):
        first, tokens, begin, length = step.jobs.long().unbind(1)
        fits = (
            (step.jobs.min() >= 0)
            & (tokens.max() <= step.max_tokens)
            & ((first + tokens).max() <= len(step.query))
            & ((begin + length).max() <= step.indices.numel())
        )
        if not fits:
            raise WrongShape("jobs", step.jobs.tolist(), "tokens of the query and slots of indices")


def _check_shapes(step: Decode) -> None:
    _expect_dtype("query", step.query, *QUERY_DTYPES)
    _expect_dtype("indices", step.indices, torch.int32)
    _expect_dtype("out", step.out, *OUT_DTYPES)
    if step.query.dim() != 3 or step.query.shape[2] != row.HEAD_SIZE:
        raise WrongShape("query", list(step.query.shape), f"[tokens, heads, {row.HEAD_SIZE}]")
    tokens, heads, _ = step.query.shape
    if not 1 <= heads <= row.MAX_HEADS:
        raise WrongShape("heads", heads, f"1 to {row.MAX_HEADS} per rank")
    _expect_shape("out", step.out, (tokens, heads, row.LATENT))
    if step.jobs is None:
        if step.indices.dim() != 2 or len(step.indices) != tokens or step.indices.shape[1] < 1:
            raise WrongShape("indices", list(step.indices.shape), f"[{tokens}, slots], slots >= 1")
    else:
        _expect_shape("indices", step.indices, (step.indices.numel(),))
        _expect_dtype("jobs", step.jobs, torch.int32)
        _expect_shape("jobs", step.jobs, (len(step.jobs), 4))
        if step.planned_tokens != tokens or (tokens and not len(step.jobs)):
            found = f"{len(step.jobs)} for {step.planned_tokens} tokens"
            raise WrongShape("jobs", found, f"jobs for {tokens} tokens, as the query has")
    if step.masks is not None:
        if step.jobs is None:
            raise WrongShape("masks", list(step.masks.shape), "jobs beside them, or None")
        _expect_dtype("masks", step.masks, torch.int32)
        _expect_shape("masks", step.masks, tuple(step.indices.shape))
    if step.indices.numel() >= 1 << 31 or step.num_jobs > MAX_JOBS:
        raise WrongShape(
            "the step", f"{step.num_jobs} jobs", f"at most {MAX_JOBS}, under 2^31 slots"
        )
    if not 1 <= step.max_tokens <= row.MAX_FUSED_TOKENS:
        raise WrongShape("tokens of a job", step.max_tokens, f"1 to {row.MAX_FUSED_TOKENS}")
    for name, tensor, shape in (
        ("sinks", step.sinks, (heads,)),
        ("lse", step.lse, (tokens, heads)),
    ):
        if tensor is not None:
            _expect_dtype(name, tensor, torch.float32)
            _expect_shape(name, tensor, shape)


def _expect_dtype(name: str, tensor: torch.Tensor, *dtypes: torch.dtype) -> None:
    if tensor.dtype not in dtypes:
        raise WrongDtype(name, tensor.dtype, dtypes)


def _expect_shape(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise WrongShape(name, list(tensor.shape), str(list(shape)))
