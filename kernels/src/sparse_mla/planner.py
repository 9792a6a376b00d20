"""How many blocks share a query token: a function of the batch and of what a device holds at once.

A decode step has few tokens and many multiprocessors, and a block needs a multiprocessor to itself
(its shared memory is above half). The first size, from the largest, whose clusters all run at once
is best: fewer blocks would leave multiprocessors idle, more would make a second wave. When no size
fits, a step takes waves x (a block's stages + what every cluster pays once), and the least is
chosen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparse_mla import row
from sparse_mla.errors import WrongShape, WrongValue

PREFERRED_BLOCKS = (8, 6, 5, 4, 3)
"""Seven is left out: the 16 to 18 multiprocessors of a GPC hold two clusters of 7 and two of 8."""
SATURATED_BLOCKS = (8, 6, 5, 4, 3, 2, 1)
"""Beyond one wave: with more tokens than multiprocessors, one block each is best."""
CLUSTER_STAGES = 7
"""What a cluster pays once (launch, query, filling the pipeline, merge), in stages of a block. Not
measured; more of them favours fewer waves. A GPU's run of device_check.sh corrects it."""


@dataclass(frozen=True)
class Capacity:
    """Clusters of each size that a device runs at the same time."""

    clusters: Mapping[int, int]

    @classmethod
    def of_gpcs(cls, multiprocessors: Sequence[int]) -> "Capacity":
        """From the multiprocessors of each GPC: a cluster lies within one, a block fills one."""
        sizes = range(1, row.MAX_CLUSTER_BLOCKS + 1)
        return cls({size: sum(count // size for count in multiprocessors) for size in sizes})


def choose_cluster_blocks(clusters: int, slots: int, capacity: Capacity) -> int:
    """Blocks per cluster, for a step of so many clusters (jobs x row groups) of so many slots.

    WrongShape for a step without clusters, WrongValue for a device that runs none.
    """
    if clusters < 1 or slots < 0:
        raise WrongShape(
            "the step", f"{clusters} clusters of {slots} slots", "at least one cluster"
        )
    stages = max(1, -(-slots // row.STAGE_SLOTS))
    for size in PREFERRED_BLOCKS:
        is_useful = size <= max(stages, PREFERRED_BLOCKS[-1])
        if is_useful and clusters <= capacity.clusters[size]:
            return size

    def cost(size: int) -> tuple[int, int]:
        waves = -(-clusters // capacity.clusters[size])
        return waves * (-(-stages // size) + CLUSTER_STAGES), size

    possible = [size for size in SATURATED_BLOCKS if size <= stages and capacity.clusters[size]]
    if not possible:
        raise WrongValue("the device's capacity", dict(capacity.clusters), "room for one cluster")
    return min(possible, key=cost)
