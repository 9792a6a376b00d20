"""uvicorn as one task among others: on a socket of ours, without its signal handlers.

uvicorn ends the process with the signal's own status after a clean stop; a supervisor would take
every stop for a crash. Here signals stay with the process, which sets `should_exit`.
"""

import contextlib
import socket
from collections.abc import Iterator

import uvicorn

BACKLOG = 2048


class HttpServer(uvicorn.Server):
    """Serves until `should_exit` is set."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves the signals alone."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; 0 takes a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)
