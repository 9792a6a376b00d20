"""Runs uvicorn inside the process's own event loop, with a stop that lets running requests end."""

import asyncio
import math
import socket

import uvicorn

import observe
from gateway.edge.app import build_app
from gateway.edge.exchange import STOP_WAIT_S
from gateway.edge.state import Gateway
from wire.http_edge import HttpServer

log = observe.get_logger(__name__)

KEEP_ALIVE_S = 75
"""Above the 60 s after which common load balancers close: they then close first, and lose no
request."""


async def serve(gateway: Gateway, listener: socket.socket, stop: asyncio.Event) -> None:
    """Serves until `stop`, then until every request has ended or the drain time is over."""
    drain_s = gateway.settings.drain_s
    server = HttpServer(
        uvicorn.Config(
            build_app(gateway),
            http="httptools",
            loop="none",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=math.ceil(drain_s + STOP_WAIT_S),
        )
    )
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(server.serve(sockets=[listener]))
        tasks.create_task(_stop(gateway, server, serving, stop))


async def _stop(
    gateway: Gateway, server: uvicorn.Server, serving: "asyncio.Task[None]", stop: asyncio.Event
) -> None:
    await stop.wait()
    gateway.is_stopping = True
    log.info("stopping", running=len(gateway.running))
    server.should_exit = True
    await asyncio.wait([serving], timeout=gateway.settings.drain_s)
    gateway.stop_exchanges()
