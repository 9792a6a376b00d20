"""Which worker takes a request: filter, score, pick. No I/O.

Affinity is a score, never a filter: a session whose worker is gone simply goes elsewhere.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class DecodeCandidate:
    """What is known of one decode worker for this prompt."""

    worker_id: int
    overlap_blocks: int
    active_requests: int
    kv_blocks: int
    """Blocks that its running requests hold, this one included."""


BUSY_MARGIN = 8
"""A session leaves its worker when that one has this many more requests than the least busy one:
below that a moved session loses more (its whole prefix is read again) than it gains."""


def pick_decode(
    candidates: Sequence[DecodeCandidate], session_worker: int | None
) -> DecodeCandidate | None:
    """The session's own worker unless it is far busier than others; else the least loaded.

    Among equally loaded ones the longest cached prefix wins, then the lowest id (so that the choice
    is the same for the same snapshot). None when there is no candidate.
    """
    if not candidates:
        return None
    least_busy = min(candidate.active_requests for candidate in candidates)
    for candidate in candidates:
        is_own = candidate.worker_id == session_worker
        if is_own and candidate.active_requests <= least_busy + BUSY_MARGIN:
            return candidate
    return min(
        candidates,
        key=lambda c: (c.active_requests, -c.overlap_blocks, c.kv_blocks, c.worker_id),
    )


def usable(
    instances: Collection[int],
    draining: Collection[int],
    gone: Collection[int],
    suspects: Collection[int],
) -> list[int]:
    """Workers that may get a request: listed, not draining, not just found gone, not suspect.

    When only suspects are left they are used: a worker that may work beats none. One that could not
    even be reached does not.
    """
    alive = [w for w in sorted(instances) if w not in draining and w not in gone]
    return [worker for worker in alive if worker not in suspects] or alive


def is_prefill_local(
    prompt_tokens: int, overlap_blocks: int, block_tokens: int, local_prefill_max_tokens: int
) -> bool:
    """True when what decode does not hold yet is too short to be worth moving."""
    uncached = max(0, prompt_tokens - overlap_blocks * block_tokens)
    return uncached <= local_prefill_max_tokens
