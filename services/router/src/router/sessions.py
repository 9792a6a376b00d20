"""Which decode worker a session was last on, so that its next turn finds its KV there.

Kept in memory only: after a restart the KV index still finds the cached prefix.
"""

from collections import OrderedDict
from collections.abc import Callable

MOST_SESSIONS = 100_000
"""About 20 MB; the session that was idle longest is forgotten first."""


class Sessions:
    """Session id to worker id, bounded in time and number."""

    def __init__(self, ttl_s: float, clock: Callable[[], float]) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._seen: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def worker_of(self, session_id: str | None) -> int | None:
        """The worker of a session that was active within the TTL."""
        if session_id is None or session_id not in self._seen:
            return None
        worker_id, seen_at = self._seen[session_id]
        if self._clock() - seen_at > self._ttl_s:
            del self._seen[session_id]
            return None
        return worker_id

    def remember(self, session_id: str | None, worker_id: int) -> None:
        """Notes that a session is on this worker now."""
        if session_id is None:
            return
        self._seen[session_id] = (worker_id, self._clock())
        self._seen.move_to_end(session_id)
        while len(self._seen) > MOST_SESSIONS:
            self._seen.popitem(last=False)
