"""The kernel on a GPU: the library for its architecture, launched on its current stream."""

import ctypes
import functools

import torch

from sparse_mla import build
from sparse_mla.call import Decode, DecodeCall
from sparse_mla.errors import LaunchFailed, UnsupportedArchitecture
from sparse_mla.planner import Capacity, choose_cluster_blocks
from sparse_mla.row import MAX_CLUSTER_BLOCKS

ARCHITECTURE_OF = {(9, 0): "sm_90a", (10, 0): "sm_100a", (10, 3): "sm_103a"}


def decode(step: Decode, cluster_blocks: int) -> None:
    """Launches a step without allocating or synchronising; 0 blocks: the planner chooses."""
    index = step.query.device.index
    with torch.cuda.device(index):
        library = _load(architecture(index))
        blocks = cluster_blocks or planned_blocks(step)
        call = step.to_call(blocks, torch.cuda.current_stream(index).cuda_stream)
        _succeed(library, library.sparse_mla_decode(ctypes.byref(call)))


def planned_blocks(step: Decode) -> int:
    """The blocks of a cluster that the planner chooses for a step on its device."""
    resident = capacity(step.query.device.index, step.row_tiles, step.split)
    return choose_cluster_blocks(step.num_clusters, step.slots_per_job, resident)


def prepare(index: int) -> None:
    """Builds, loads and asks what a first step would: that one may be inside a graph's capture."""
    for row_tiles in (1, 2, 4):
        capacity(index, row_tiles, False)


def architecture(index: int) -> str:
    """The build that the device runs."""
    found = torch.cuda.get_device_capability(index)
    if found not in ARCHITECTURE_OF:
        raise UnsupportedArchitecture(
            f"compute capability {found[0]}.{found[1]}", list(ARCHITECTURE_OF.values())
        )
    return ARCHITECTURE_OF[found]


@functools.cache
def capacity(index: int, row_tiles: int, split: bool) -> Capacity:
    """Clusters of each size that the device runs at once, by the runtime's occupancy query."""
    library = _load(architecture(index))
    clusters = {}
    with torch.cuda.device(index):
        for blocks in range(1, MAX_CLUSTER_BLOCKS + 1):
            resident = ctypes.c_int()
            code = library.sparse_mla_resident_clusters(
                row_tiles, int(split), blocks, ctypes.byref(resident)
            )
            _succeed(library, code)
            clusters[blocks] = resident.value
    return Capacity(clusters)


@functools.cache
def _load(name: str) -> ctypes.CDLL:
    library = ctypes.CDLL(str(build.device_library(name)))
    library.sparse_mla_decode.argtypes = (ctypes.POINTER(DecodeCall),)
    library.sparse_mla_error_name.restype = ctypes.c_char_p
    return library


def _succeed(library: ctypes.CDLL, code: int) -> None:
    if code:
        raise LaunchFailed(code, library.sparse_mla_error_name(code).decode())
