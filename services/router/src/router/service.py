"""What one router process holds: its model, its workers, and the requests that it serves now."""

import time

from router.constrain import Constrainer
from router.domain import Generation
from router.generate import Run
from router.render import Renderer
from router.sessions import Sessions
from router.settings import RouterSettings
from router.workers import Workers


class RouterService:
    """Starts, finds and ends requests."""

    def __init__(
        self,
        settings: RouterSettings,
        renderer: Renderer,
        constrainer: Constrainer,
        workers: Workers,
    ) -> None:
        self.settings = settings
        self.renderer = renderer
        self.constrainer = constrainer
        self.workers = workers
        self._sessions = Sessions(settings.session_ttl_s, time.monotonic)
        self._runs: dict[str, Run] = {}

    def start(self, generation: Generation) -> Run:
        """A new run; nothing is sent before its tokens are read."""
        run = Run(generation, self.workers, self._sessions, self.settings)
        self._runs[generation.request_id] = run
        return run

    def finish(self, run: Run) -> None:
        """Forgets a run that has ended."""
        self._runs.pop(run.generation.request_id, None)

    def cancel(self, request_id: str) -> bool:
        """Cancels a running request; False when it is not here (any more)."""
        run = self._runs.get(request_id)
        if run is None:
            return False
        run.cancel()
        return True

    def worker_counts(self) -> dict[str, int]:
        """How many workers of each kind may get a request now."""
        return {
            "prefill_workers": len(self.workers.alive("prefill")),
            "decode_workers": len(self.workers.alive("decode")),
        }
