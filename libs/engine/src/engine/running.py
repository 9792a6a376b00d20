"""The requests that are in the engine now: their number, and when one may be aborted.

Invariant: a request that pulls KV is not aborted before its first token. vLLM's scheduler asserts
that a pending receive still has its request (vllm/v1/core/sched/scheduler.py,
_update_from_kv_xfer_finished): under MultiConnector an abort in the middle of a pull can take the
whole EngineCore down.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


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

    def __init__(self) -> None:
        self._requests: dict[str, Running] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._requests)

    def get(self, request_id: str) -> Running | None:
        """The running request of this id, None when it is not here any more."""
        return self._requests.get(request_id)

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
