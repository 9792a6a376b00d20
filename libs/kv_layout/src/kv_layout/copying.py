"""A plan carried out between two buffers of this host: staging, and the proof that plans are right.

Slow beside NIXL; nothing here is asynchronous.
"""

from kv_layout.arrays import Bytes
from kv_layout.errors import WrongShape
from kv_layout.pools import Pool, check_buffer
from kv_layout.runs import Copies


def copy(
    copies: Copies,
    source: Pool,
    source_buffer: Bytes,
    target: Pool,
    target_buffer: Bytes,
) -> None:
    """Copies every descriptor's bytes.

    The buffers are the pools' bytes, uint8 [size_bytes]; address `base` is their first byte. Raises
    WrongDtype and WrongShape, the latter also for a plan that leaves either pool; nothing is
    copied then.
    """
    check_buffer(source_buffer, source.size_bytes)
    check_buffer(target_buffer, target.size_bytes)
    from_offsets, to_offsets = copies.source - source.base, copies.target - target.base
    for offsets, pool in ((from_offsets, source), (to_offsets, target)):
        ends = offsets + copies.length
        if len(copies) and (offsets.min() < 0 or ends.max() > pool.size_bytes):
            raise WrongShape(
                "plan",
                f"offsets 0 to {pool.size_bytes}",
                f"{offsets.min()} to {ends.max()}",
            )
    for begin, to, length in zip(
        from_offsets.tolist(), to_offsets.tolist(), copies.length.tolist(), strict=True
    ):
        target_buffer[to : to + length] = source_buffer[begin : begin + length]
