"""One request's speculative tokens over the union of the rows they chose.

The tokens of a request that are verified together choose nearly the same rows. Fused, a row is
loaded and unpacked once for all of them, and the kernel's tiles of 16 query rows fill up; a mask
says which tokens use which slot, so the result is that of the tokens alone.

The plan is made of torch operations with fixed shapes: no size is read back from the device. It
sorts every chosen index, which costs more than one layer's decode saves; it pays where the layers
share their choice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sparse_mla import row
from sparse_mla.errors import WrongDtype, WrongShape

_INDEX_BITS, _OCCURRENCE_BITS = 31, 14
_NOTHING = (1 << _INDEX_BITS) - 1
"""Sorts empty slots behind every row of their job."""


@dataclass(frozen=True)
class FusedSlots:
    """The jobs of a step: runs of tokens, and the slots that each run works through."""

    indices: torch.Tensor
    """int32 [slots]: a row of the cache, or -1"""
    masks: torch.Tensor
    """int32 [slots]: bit t is set where the job's token t chose the row"""
    jobs: torch.Tensor
    """int32 [jobs, 4]: first token, tokens, first slot, slots; on the device of the indices"""
    max_tokens: int
    """of a job"""
    tokens: int
    """of all jobs: what the query must have"""


def fuse(indices: torch.Tensor, tokens_per_request: Sequence[int], heads: int) -> FusedSlots:
    """Plans a step of indices [tokens, slots], whose consecutive tokens belong to requests.

    A job takes as many of a request's tokens as one cluster has query rows for.
    """
    if indices.dtype != torch.int32:
        raise WrongDtype("indices", indices.dtype, [torch.int32])
    if indices.dim() != 2:
        raise WrongShape("indices", list(indices.shape), "[tokens, slots]")
    tokens, slots = indices.shape
    if sum(tokens_per_request) != tokens or min(tokens_per_request, default=0) < 0:
        raise WrongShape(
            "tokens_per_request", list(tokens_per_request), f"counts of {tokens} in all"
        )
    if not 1 <= slots < 1 << _OCCURRENCE_BITS:
        raise WrongShape("slots", slots, f"1 to {(1 << _OCCURRENCE_BITS) - 1}")
    if not 1 <= heads <= row.MAX_HEADS:
        raise WrongShape("heads", heads, f"1 to {row.MAX_HEADS} per rank")
    runs = _runs(tokens_per_request, heads)
    device = indices.device
    first = torch.tensor([start for start, _ in runs], dtype=torch.long, device=device)
    count = torch.tensor([length for _, length in runs], dtype=torch.long, device=device)
    job_of_token = torch.repeat_interleave(
        torch.arange(len(runs), device=device), count, output_size=tokens
    )

    # A bad index becomes the one index that no cache has, for the kernel to refuse: a negative one
    # other than -1, and the largest, which would pass for an empty slot.
    is_bad = (indices < -1) | (indices == _NOTHING)
    named = torch.where(indices == -1, _NOTHING, torch.where(is_bad, _NOTHING - 1, indices)).long()
    # Sort by job, row, and how often the token has named the row before: a row that a token names
    # twice counts twice, so the second naming gets a slot of its own.
    ordered = named.sort(dim=1).values
    occurrence = torch.arange(slots, device=device) - torch.searchsorted(ordered, ordered)
    is_empty = ordered == _NOTHING
    key = (job_of_token[:, None] << _INDEX_BITS | ordered) << _OCCURRENCE_BITS
    key = torch.where(is_empty, key, key | occurrence).flatten()
    bit = torch.where(
        is_empty, 0, 1 << (torch.arange(tokens, device=device) - first[job_of_token])[:, None]
    )
    key, order = key.sort()
    bit = bit.flatten()[order]
    rows = key >> _OCCURRENCE_BITS & _NOTHING

    # A key's first place opens a slot; a job's slots begin where its tokens' indices did.
    opens = (torch.cat([key.new_full((1,), -1), key[:-1]]) != key) & (rows != _NOTHING)
    opened = opens.cumsum(0)
    begin = first * slots
    before = opened[begin] - opens[begin].long()
    place = (
        opened
        - 1
        - torch.repeat_interleave(before - begin, count * slots, output_size=tokens * slots)
    )
    place = place.clamp(min=0)
    masks = torch.zeros_like(key).scatter_add_(0, place, bit)
    fused = torch.full_like(key, -1).scatter_reduce_(
        0, place, torch.where(bit > 0, rows, -1), "amax", include_self=True
    )
    last = torch.cat([before[1:], opened[-1:]])
    jobs = torch.stack([first, count, begin, last - before], dim=1)
    longest = max((length for _, length in runs), default=1)
    return FusedSlots(fused.int(), masks.int(), jobs.int(), longest, tokens)


def _runs(tokens_per_request: Sequence[int], heads: int) -> list[tuple[int, int]]:
    """(first token, tokens) of each job."""
    most = min(max(1, row.MAX_CLUSTER_ROWS // heads), row.MAX_FUSED_TOKENS)
    runs, start = [], 0
    for tokens in tokens_per_request:
        for at in range(0, tokens, most):
            runs.append((start + at, min(most, tokens - at)))
        start += tokens
    return runs
