"""uvicorn as one task among others: on a socket of ours, without its signal handlers."""

import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI


class HttpServer(uvicorn.Server):
    """Serves until `should_exit` is set; signals stay with the process's own handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves the signals alone."""
        yield


def http_server(app: FastAPI) -> HttpServer:
    """A server for this application."""
    return HttpServer(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            log_level="warning",
            lifespan="off",
            timeout_graceful_shutdown=2,
        )
    )


def bind(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, port))
    sock.set_inheritable(True)
    return sock
