"""The process groups that a cache's rows travel in: made once, used by one request after another.

Making one is a rendezvous (with NCCL also a communicator and its buffers), and `dist.new_group`
counts the groups of each rank to name them, so that every rank of the job must make every group,
in one order. No request can promise that: caches are given their groups and make none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from layersplit.errors import WrongGroups


@dataclass(frozen=True)
class CacheGroups:
    """Three process groups of the same ranks, this one among them.

    Work of one group runs in the order it was started. Indexer and KV rows have a group each, so
    that a layer's KV is under way while its indexer selects.
    """

    append: Any
    index: Any
    kv: Any

    def __post_init__(self) -> None:
        groups = (self.append, self.index, self.kv)
        if any(dist.get_rank(group) < 0 for group in groups):
            raise WrongGroups("groups that this rank is in", f"rank {dist.get_rank()} outside")
        ranks = [dist.get_process_group_ranks(group) for group in groups]
        if ranks[0] != ranks[1] or ranks[0] != ranks[2]:
            raise WrongGroups("three groups of the same ranks", f"{ranks}")

    @property
    def members(self) -> list[int]:
        """The global rank of each rank of the groups."""
        return list(dist.get_process_group_ranks(self.append))

    def close(self) -> None:
        """Ends the three groups; every member comes here when no cache uses them any more."""
        for group in (self.append, self.index, self.kv):
            dist.destroy_process_group(group)


def make_groups(parts: Sequence[Sequence[int]], timeout: timedelta) -> CacheGroups | None:
    """Makes the groups of each part of the job's ranks; this rank's, or None if it is in no part.

    Every rank of the job comes here with the same parts. `timeout`: how long a rank waits for
    another's rows before torch.distributed raises. Raises WrongGroups where a rank is in two parts.
    """
    listed = [rank for part in parts for rank in part]
    if len(set(listed)) < len(listed):
        raise WrongGroups("each rank in one part", f"{[list(part) for part in parts]}")
    own = None
    for part in parts:
        append, index, kv = (dist.new_group(list(part), timeout=timeout) for _ in range(3))
        if dist.get_rank() in part:
            own = CacheGroups(append, index, kv)
    return own
