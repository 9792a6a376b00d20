"""The requests that are in the engine now: their number, and when one may be aborted.

An abort may overtake its own request (they come on different connections): it is remembered, and
the request is refused when it comes.

Invariant: a request that pulls KV is not aborted before its first token. vLLM's scheduler asserts
that a pending receive still has its request (vllm/v1/core/sched/scheduler.py,
_update_from_kv_xfer_finished): under MultiConnector an abort in the middle of a pull can take the
whole EngineCore down.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

REMEMBERED_S = 60.0
"""An abort that is older than its request by more than this is forgotten."""
MOST_REMEMBERED = 4_096


@dataclass
class Running:
    """One request in the engine."""

    pulls_kv: bool
    has_first_token: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_until_abortable(self) -> None:
        """Returns at once unless a pull may still be running."""
        if self.pulls_kv:
            await self.has_first_token.wait()


class RunningRequests:
    """Requests by their id."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._requests: dict[str, Running] = {}
        self._aborted_early: dict[str, float] = {}
        self._clock = clock
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._requests)

    def get(self, request_id: str) -> Running | None:
        """The running request of this id, None when it is not here any more."""
        return self._requests.get(request_id)

    def abort_early(self, request_id: str) -> None:
        """Remembers the abort of a request that is not here: it may still be on its way."""
        now = self._clock()
        self._aborted_early[request_id] = now + REMEMBERED_S
        for known, until in list(self._aborted_early.items()):  # the oldest first
            if until > now and len(self._aborted_early) <= MOST_REMEMBERED:
                break
            del self._aborted_early[known]

    def was_aborted_early(self, request_id: str) -> bool:
        """True, once, for a request whose abort came before it."""
        return self._aborted_early.pop(request_id, 0.0) > self._clock()

    @contextmanager
    def entered(self, request_id: str, *, pulls_kv: bool) -> Iterator[Running]:
        """Holds a request for as long as the engine works on it."""
        running = Running(pulls_kv)
        self._requests[request_id] = running
        self._idle.clear()
        try:
            yield running
        finally:
            running.has_first_token.set()
            self._requests.pop(request_id, None)
            if not self._requests:
                self._idle.set()

    async def wait_until_idle(self) -> None:
        """Returns when no request is left."""
        await self._idle.wait()
