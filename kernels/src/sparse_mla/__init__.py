"""Sparse MLA decode over 352-byte NVFP4 rows: CUDA kernel, reference, emulator, planner.

Importing needs neither a GPU nor a compiler: the builds are made when they are first used.
"""

from sparse_mla.api import nvfp4_sparse_mla_decode, nvfp4_sparse_mla_decode_fused
from sparse_mla.fusion import FusedSlots, fuse
from sparse_mla.planner import Capacity, choose_cluster_blocks

__all__ = [
    "Capacity",
    "FusedSlots",
    "choose_cluster_blocks",
    "fuse",
    "nvfp4_sparse_mla_decode",
    "nvfp4_sparse_mla_decode_fused",
]
