"""What callers use: decode over nvfp4_ds_mla rows, under FlashInfer's names where it has them.

Beyond flashinfer.mla.nvfp4_sparse_mla_decode (0.7.4: 16 heads, no log-sum-exp, no sinks, indices
unchecked): 1 to 128 heads, `return_lse`, `sinks`, any number of slots, and a request's speculative
tokens fused.
"""

from dataclasses import fields, replace
from typing import Literal

import torch

from sparse_mla import op, row
from sparse_mla.call import Decode
from sparse_mla.checks import check_blocks, flat_rows
from sparse_mla.errors import WrongShape, WrongValue
from sparse_mla.fusion import FusedSlots

Probabilities = Literal["fp16", "fp16x2"]
"""What multiplies the values: one half each (11 bits), or two (22 bits, a second MMA for each)."""


def nvfp4_sparse_mla_decode(
    query: torch.Tensor,
    kv_cache: torch.Tensor,
    indices: torch.Tensor,
    bmm1_scale: float,
    bmm2_scale: float = 1.0,
    out: torch.Tensor | None = None,
    num_ctas_per_token: int | None = None,
    backend: Literal["cuda"] = "cuda",
    *,
    sinks: torch.Tensor | None = None,
    return_lse: bool = False,
    probabilities: Probabilities = "fp16",
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of query [tokens, heads, 576] over the rows that indices [tokens, slots] choose.

    `kv_cache` is uint8 [..., 352]; an index counts its rows, -1 is an empty slot. The query is
    e4m3, float16 or bfloat16; `bmm1_scale` multiplies the scores, `bmm2_scale` the output. `out`
    [tokens, heads, 512] is bfloat16 (made if missing), float16 or float32. `num_ctas_per_token`
    (1 to 8) overrides the planner. Of FlashInfer's `backend`s there is one, and tensors on a CPU go
    to the reference. `sinks` [heads] are natural logits that take weight and give nothing. The
    log-sum-exp [tokens, heads] is natural, sinks included. A token without rows gives zeros, and
    its sink or minus infinity. Raises a `SparseMlaError` for what does not fit.
    """
    _check_backend(backend)
    step = _step(query, kv_cache, indices, out, sinks, return_lse)
    step = replace(
        step,
        scale=float(bmm1_scale),
        out_scale=float(bmm2_scale),
        split=_is_split(probabilities),
    )
    return run(step, num_ctas_per_token)


def nvfp4_sparse_mla_decode_fused(
    query: torch.Tensor,
    kv_cache: torch.Tensor,
    slots: FusedSlots,
    bmm1_scale: float,
    bmm2_scale: float = 1.0,
    out: torch.Tensor | None = None,
    num_ctas_per_token: int | None = None,
    backend: Literal["cuda"] = "cuda",
    *,
    sinks: torch.Tensor | None = None,
    return_lse: bool = False,
    probabilities: Probabilities = "fp16",
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """The same for the tokens whose slots `fusion.fuse` has planned, all of them.

    A NaN in a row that one token of a job chose reaches the job's other tokens too.
    """
    _check_backend(backend)
    step = _step(query, kv_cache, slots.indices, out, sinks, return_lse)
    step = replace(
        step,
        masks=slots.masks,
        jobs=slots.jobs,
        max_tokens=slots.max_tokens,
        planned_tokens=slots.tokens,
        scale=float(bmm1_scale),
        out_scale=float(bmm2_scale),
        split=_is_split(probabilities),
    )
    return run(step, num_ctas_per_token)


def run(
    step: Decode, cluster_blocks: int | None
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Calls the operator for a step; its checks are the operator's."""
    if cluster_blocks is not None:
        check_blocks("num_ctas_per_token", cluster_blocks)
    arguments = [getattr(step, field.name) for field in fields(step)]
    op.call(*arguments, cluster_blocks or 0)
    return step.out if step.lse is None else (step.out, step.lse)


def _check_backend(backend: str) -> None:
    """FlashInfer's "cake" is another kernel."""
    if backend != "cuda":
        raise WrongValue("backend", backend, "'cuda'")


def _is_split(probabilities: Probabilities) -> bool:
    if probabilities not in ("fp16", "fp16x2"):
        raise WrongValue("probabilities", probabilities, "'fp16' or 'fp16x2'")
    return probabilities == "fp16x2"


def _step(
    query: torch.Tensor,
    kv_cache: torch.Tensor,
    indices: torch.Tensor,
    out: torch.Tensor | None,
    sinks: torch.Tensor | None,
    return_lse: bool,
) -> Decode:
    """A step with its outputs made, still without scales."""
    if query.dim() != 3:
        raise WrongShape("query", list(query.shape), f"[tokens, heads, {row.HEAD_SIZE}]")
    tokens, heads, _ = query.shape
    if out is None:
        out = query.new_empty((tokens, heads, row.LATENT), dtype=torch.bfloat16)
    lse = query.new_empty((tokens, heads), dtype=torch.float32) if return_lse else None
    return Decode(
        query=query,
        rows=flat_rows(kv_cache),
        indices=indices,
        masks=None,
        jobs=None,
        sinks=sinks,
        scale=1.0,
        out_scale=1.0,
        max_tokens=1,
        planned_tokens=None,
        split=False,
        out=out,
        lse=lse,
    )
