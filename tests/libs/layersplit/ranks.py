"""Runs the jobs below on N ranks over gloo: `python -m tests.libs.layersplit.ranks N FOLDER`.

One process imports torch and forks the ranks. Each writes what every job found to
FOLDER/rank<r>.json.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from layersplit.cache import LayerSplitCache
from layersplit.groups import make_groups
from layersplit.replicated import ReplicatedCache
from tests.libs.layersplit.broken_rules import mutants
from tests.libs.layersplit.failures import dead_rank, failures, refusals
from tests.libs.layersplit.overlaps import indexer_overlap, next_layer_overlap
from tests.libs.layersplit.prefills import (
    CHUNKS,
    SHAPE,
    TIMEOUT,
    is_equal,
    outputs_of,
    replicated,
    split,
)
from tests.libs.layersplit.toy_layers import ToyLayers


def equality(store, groups):
    """Every way to overlap against the reference."""
    expected, traffic = replicated()
    found = {"replicated": traffic}
    for overlap in ("none", "indexer", "next_layer"):
        outputs, traffic = split(groups, overlap=overlap)
        found[overlap] = {"is_equal": is_equal(expected, outputs), **traffic}
    return found


def parts_of_the_job(store, groups):
    """Disjoint parts of the ranks, each with a request of its own, then with another request.

    Ranks of a part are no neighbours, so their numbers in the part are not those in the job.
    """
    world, rank = dist.get_world_size(), dist.get_rank()
    parts = [range(first, world, 2) for first in (0, 1)]
    own = make_groups(parts, TIMEOUT)
    made, stock = [], dist.new_group
    dist.new_group = lambda *_, **__: made.append(1)
    try:
        equal = []
        for seed in (20 + rank % 2, 30 + rank % 2):
            reference = ReplicatedCache(SHAPE, own.append)
            expected = outputs_of(reference, ToyLayers(SHAPE), CHUNKS, seed=seed)
            cache = LayerSplitCache(SHAPE, own)
            outputs = outputs_of(cache, ToyLayers(SHAPE), CHUNKS, seed=seed)
            equal.append(is_equal(expected, outputs))
    finally:
        dist.new_group = stock
    members = own.members
    own.close()
    only = make_groups([[0]], TIMEOUT)
    return {
        "is_equal": equal,
        "members": members == list(parts[rank % 2]),
        "made_by_caches": len(made),
        "has_groups_of_rank_0": only is not None,
    }


JOBS = (
    equality,
    indexer_overlap,
    next_layer_overlap,
    parts_of_the_job,
    dead_rank,
    failures,
    mutants,
    refusals,
)


def run_rank(rank, ranks, folder):
    """All jobs on one rank."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=ranks,
        timeout=TIMEOUT,
    )
    results, groups = {}, make_groups([range(ranks)], TIMEOUT)
    for job in JOBS:
        store = dist.PrefixStore(job.__name__, dist.FileStore(f"{folder}/steps", ranks))
        results[job.__name__] = job(store, groups)
    dist.barrier()
    (folder / f"rank{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


def main(ranks, folder):
    """Forks the ranks and waits; fails with the first that fails."""
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            run_rank(rank, ranks, folder)
            os._exit(0)
        children.append(child)
    failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
