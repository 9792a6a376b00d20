"""The torch operator `millrace::sparse_mla_decode`: the kernel on CUDA, the reference on the CPU.

It writes into `out` and `lse`, so it has nothing to return. Its arguments are the fields of
`Decode`, in their order, and the blocks of a cluster (0: the planner chooses). Importing this
module registers it, which needs neither a GPU nor a compiler.
"""

from collections.abc import Sequence
from typing import Any

import torch

from sparse_mla import device, reference
from sparse_mla.call import Decode
from sparse_mla.checks import check, check_blocks

NAME = "millrace::sparse_mla_decode"
SCHEMA = (
    "(Tensor query, Tensor rows, Tensor indices, Tensor? masks, Tensor? jobs, Tensor? sinks,"
    " float scale, float out_scale, int max_tokens, int? planned_tokens, bool split,"
    " Tensor(a!) out, Tensor(b!)? lse, int cluster_blocks) -> ()"
)


def call(*arguments: Any) -> None:
    """The operator, as torch dispatches it."""
    torch.ops.millrace.sparse_mla_decode(*arguments)


def _on_cuda(*arguments: Any) -> None:
    step = _checked(arguments)
    if step.num_jobs:  # CUDA refuses a grid of nothing
        device.decode(step, arguments[-1])


def _on_cpu(*arguments: Any) -> None:
    step = _checked(arguments)
    out, lse = reference.decode(step)
    step.out.copy_(out)
    if step.lse is not None:
        step.lse.copy_(lse)


def _checked(arguments: Sequence[Any]) -> Decode:
    """The step; blocks are the planner's where they are 0."""
    *fields, blocks = arguments
    if blocks:
        check_blocks("cluster_blocks", blocks)
    step = Decode(*fields)
    check(step)
    return step


def _on_nothing(*_: Any) -> None:
    """For tracing: the operator only writes into its arguments."""


torch.library.define(NAME, SCHEMA)
torch.library.impl(NAME, "cuda", _on_cuda)
torch.library.impl(NAME, "cpu", _on_cpu)
torch.library.register_fake(NAME, _on_nothing)
