"""gRPC as every service uses it: servers, channels, and followed streams.

A follower (`follow`) keeps the last thing it heard while the server is away and connects again with
backoff; a stream that is silent for longer than its sign of life counts as broken.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar, cast

import grpc
import grpc.aio
import structlog

from wire import backoff

log = structlog.get_logger(__name__)

Message = TypeVar("Message")

SIGN_OF_LIFE_S = 2.0
"""Watch streams send something at least this often."""
SILENCE_LIMIT_S = 5.0
STOP_GRACE_S = 2.0
OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A peer that restarts must be found again within a second, not after gRPC's default minute.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


def channel(target: str) -> grpc.aio.Channel:
    """A plaintext channel inside the cluster; use it as an async context manager."""
    return grpc.aio.insecure_channel(target, options=OPTIONS)


async def serve(
    host: str, port: int, add: Callable[[grpc.aio.Server], None]
) -> tuple[grpc.aio.Server, str]:
    """Starts a server on host:port (0 takes a free port) and returns it with its `host:port`."""
    # Without this two processes could share a port silently, and half of the calls go to a
    # stranger.
    server = grpc.aio.server(options=[*OPTIONS, ("grpc.so_reuseport", 0)])
    add(server)
    bound = server.add_insecure_port(f"{host}:{port}")
    await server.start()
    return server, f"{host}:{bound}"


async def follow(
    name: str, open_stream: Callable[[], grpc.aio.UnaryStreamCall[Any, Message]]
) -> AsyncIterator[Message]:
    """Yields every message of a watch stream, for ever, across restarts of its server."""
    delays = backoff.delays_s()
    while True:
        call = open_stream()
        try:
            while True:
                # Not wait_for: Python 3.11's loses a cancellation that meets the result.
                async with asyncio.timeout(SILENCE_LIMIT_S):
                    message = await call.read()
                if message is grpc.aio.EOF:  # type: ignore[attr-defined]  # missing in grpc-stubs
                    break
                delays = backoff.delays_s()
                yield cast(Message, message)
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            code = error.code().name if isinstance(error, grpc.aio.AioRpcError) else "SILENT"
            log.warning("watch_broken", watch=name, code=code)
        finally:
            call.cancel()
        await asyncio.sleep(next(delays))
