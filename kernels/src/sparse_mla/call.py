"""What a launch is told: `DecodeCall` of cuda/call.h, field by field, filled from tensors.

Both builds, the device's and the emulator's, take the same struct through a C function.
"""

import ctypes
from dataclasses import dataclass

import torch

from sparse_mla import row

_NUMBERS = {
    torch.float8_e4m3fn: 0,
    torch.float16: 1,
    torch.bfloat16: 2,
    torch.float32: 3,
}


class DecodeCall(ctypes.Structure):
    """Field for field the struct of cuda/call.h."""

    _fields_ = (
        *(
            (name, ctypes.c_void_p)
            for name in (
                "rows",
                "query",
                "indices",
                "masks",
                "jobs",
                "sinks",
                "out",
                "lse",
                "stream",
            )
        ),
        ("num_rows", ctypes.c_int64),
        *(
            (name, ctypes.c_int32)
            for name in (
                "query_type",
                "out_type",
                "heads",
                "topk",
                "num_jobs",
                "max_tokens",
                "cluster_blocks",
                "row_tiles",
                "split",
            )
        ),
        ("scale", ctypes.c_float),
        ("out_scale", ctypes.c_float),
    )


@dataclass(frozen=True)
class Decode:
    """One decode step: the operator's arguments, in its order."""

    query: torch.Tensor
    """[tokens, heads, 576] e4m3, float16 or bfloat16"""
    rows: torch.Tensor
    """uint8 [rows, 352]"""
    indices: torch.Tensor
    """int32 [tokens, slots], or [slots] with jobs"""
    masks: torch.Tensor | None
    jobs: torch.Tensor | None
    sinks: torch.Tensor | None
    """float32 [heads]"""
    scale: float
    out_scale: float
    max_tokens: int
    """of a job; 1 without jobs"""
    planned_tokens: int | None
    """of all jobs, known without reading them back; None without jobs"""
    split: bool
    """probabilities as two halves each, to 22 bits, instead of one"""
    out: torch.Tensor
    """[tokens, heads, 512] float16, bfloat16 or float32"""
    lse: torch.Tensor | None
    """float32 [tokens, heads]"""

    @property
    def num_jobs(self) -> int:
        """Clusters of a row group."""
        return len(self.query) if self.jobs is None else len(self.jobs)

    @property
    def row_tiles(self) -> int:
        """Tiles of 16 query rows in a cluster."""
        return row.tiles_for(self.max_tokens * self.query.shape[1])

    @property
    def num_clusters(self) -> int:
        """Clusters of the whole step."""
        groups = -(-self.max_tokens * self.query.shape[1] // (16 * self.row_tiles))
        return int(self.num_jobs * groups)

    @property
    def slots_per_job(self) -> int:
        """Slots of the longest job, as far as the host knows it."""
        return (
            int(self.indices.shape[-1]) if self.jobs is None else len(self.indices) // self.num_jobs
        )

    def to_call(self, cluster_blocks: int, stream: int | None = None) -> DecodeCall:
        """The struct; it points into the tensors, which must outlive it."""
        return DecodeCall(
            rows=self.rows.data_ptr(),
            query=self.query.data_ptr(),
            indices=self.indices.data_ptr(),
            masks=_address(self.masks),
            jobs=_address(self.jobs),
            sinks=_address(self.sinks),
            out=self.out.data_ptr(),
            lse=_address(self.lse),
            stream=stream,
            num_rows=len(self.rows),
            query_type=_NUMBERS[self.query.dtype],
            out_type=_NUMBERS[self.out.dtype],
            heads=self.query.shape[1],
            topk=0 if self.jobs is not None else self.indices.shape[1],
            num_jobs=self.num_jobs,
            max_tokens=self.max_tokens,
            cluster_blocks=cluster_blocks,
            row_tiles=self.row_tiles,
            split=self.split,
            scale=self.scale,
            out_scale=self.out_scale,
        )


def _address(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
