"""What the routes work with; made once in `__main__`."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.choose import RouteSnapshot
from gateway.errors import NotReady, Stopping
from gateway.keys import DirectorySnapshot
from gateway.settings import Settings
from gateway.spool import Spool
from gateway.upstreams import Upstreams
from millrace.v1 import usage_pb2_grpc


@dataclass
class Gateway:
    """The parts of one gateway process."""

    settings: Settings
    directory: DirectorySnapshot
    routes: RouteSnapshot
    spool: Spool
    upstreams: Upstreams
    usage: "usage_pb2_grpc.UsageAsyncStub"
    tasks: asyncio.TaskGroup
    """Owns what a request starts beside its own task."""
    running: set[Callable[[], None]] = field(default_factory=set)
    """How to stop each running exchange."""
    is_stopping: bool = False

    @property
    def is_ready(self) -> bool:
        """True while completions can be served."""
        return self.directory.has_arrived and self.routes.has_arrived and not self.is_stopping

    def check_ready(self) -> None:
        """Raises NotReady or Stopping."""
        if self.is_stopping:
            raise Stopping("This gateway is shutting down. Send the request again.")
        if not self.routes.has_arrived:
            raise NotReady("The gateway has just started and knows no models yet. Try again soon.")

    def stop_exchanges(self) -> None:
        """Ends every running request with an error event; their usage is still learnt."""
        for stop in list(self.running):
            stop()
