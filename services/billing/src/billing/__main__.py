"""Starts billing: reads settings, opens connections, serves, closes.

Postgres and NATS are waited for apart: without NATS keys and prices can still be managed and
followed, and usage waits in the stream; without Postgres nothing is served until it is there, but
the process shows up in the registry as starting.
"""

import asyncio
import importlib.metadata
from contextlib import AsyncExitStack

import grpc.aio
import uvicorn
from nats.aio.client import Client
from sqlalchemy.ext.asyncio import AsyncEngine

import observe
from billing.consume import consume
from billing.edge.admin import admin_app
from billing.edge.grpc_api import DirectoryServicer, UsageServicer
from billing.feed import DirectoryFeed
from billing.park import book_parked
from billing.settings import Settings
from billing.store import database
from millrace.v1 import directory_pb2_grpc, fleet_pb2, usage_pb2_grpc
from wire import grpc_edge, http_edge, ids, nats_connection, stopping
from wire.heartbeat import Heartbeat, new_record

log = observe.get_logger("billing")

STOP_GRACE_S = 2


class Billing:
    """One running process: its record in the registry and the tasks that make it up."""

    def __init__(self, settings: Settings, instance: str, metrics_url: str) -> None:
        self._settings = settings
        self._engine: AsyncEngine = database.open_engine(settings.database_url.get_secret_value())
        self._feed = DirectoryFeed(database.plain_dsn(settings.database_url.get_secret_value()))
        self._is_migrated = asyncio.Event()
        self._beat_now = asyncio.Event()
        version = importlib.metadata.version("millrace-billing")
        self._record = new_record("billing", instance, settings.cluster, version)
        self._record.metrics_url = metrics_url

    async def run(self) -> None:
        """Serves until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._serve(tasks))
                tasks.create_task(self._follow_nats())
        finally:
            await self._engine.dispose()

    async def _serve(self, tasks: asyncio.TaskGroup) -> None:
        await database.migrate_when_there(self._engine)
        self._is_migrated.set()
        tasks.create_task(self._feed.run())
        tasks.create_task(book_parked(self._engine, self._feed))
        await self._feed.wait_until_loaded()
        async with AsyncExitStack() as stack:
            grpc_server = await self._open_grpc()
            stack.push_async_callback(grpc_server.stop, grpc_edge.STOP_GRACE_S)
            stack.callback(self._feed.close)
            await self._serve_http()

    async def _open_grpc(self) -> grpc.aio.Server:
        def add(server: grpc.aio.Server) -> None:
            directory_pb2_grpc.add_DirectoryServicer_to_server(
                DirectoryServicer(self._feed), server
            )
            usage_pb2_grpc.add_UsageServicer_to_server(UsageServicer(self._engine), server)

        server, bound = await grpc_edge.serve(self._settings.host, self._settings.grpc_port, add)
        port = bound.rpartition(":")[2]
        self._record.grpc_target = f"{self._settings.reachable_host}:{port}"
        return server

    async def _serve_http(self) -> None:
        app = admin_app(self._engine, bytes.fromhex(self._settings.admin_key_sha256))
        with http_edge.listen(self._settings.host, self._settings.http_port) as sock:
            port = sock.getsockname()[1]
            self._record.http_url = f"http://{self._settings.reachable_host}:{port}"
            self._record.state = fleet_pb2.SERVICE_STATE_READY
            self._beat_now.set()
            log.info(
                "billing_ready",
                http_url=self._record.http_url,
                grpc_target=self._record.grpc_target,
                metrics_url=self._record.metrics_url,
            )
            server = http_edge.HttpServer(
                uvicorn.Config(
                    app,
                    log_config=None,
                    access_log=False,
                    log_level="warning",
                    lifespan="off",
                    timeout_graceful_shutdown=STOP_GRACE_S,
                )
            )
            serving = asyncio.create_task(server.serve([sock]))
            try:
                await asyncio.shield(serving)
            finally:
                server.should_exit = True
                await serving

    async def _follow_nats(self) -> None:
        nc = await nats_connection.connect(self._settings.nats_url, self._record.instance)
        try:
            async with asyncio.TaskGroup() as group:
                heartbeat = Heartbeat(nc, lambda: self._record)
                group.create_task(heartbeat.run())
                group.create_task(self._beat_on_change(heartbeat))
                group.create_task(self._consume(nc))
        finally:
            await nc.close()

    async def _beat_on_change(self, heartbeat: Heartbeat) -> None:
        await self._beat_now.wait()
        heartbeat.beat_now()

    async def _consume(self, nc: Client) -> None:
        await self._is_migrated.wait()
        await consume(nc, self._engine, self._settings.ack_wait_s)


def main() -> None:
    """Runs billing until SIGTERM or SIGINT."""
    settings = Settings()  # type: ignore[call-arg]  # the environment fills it
    instance = ids.new_instance("billing")
    observability = observe.setup("billing", instance=instance, settings=observe.ObserveSettings())
    try:
        billing = Billing(settings, instance, observability.metrics_url)
        asyncio.run(stopping.run_until_stopped(billing.run()))
    finally:
        observability.close()


if __name__ == "__main__":
    main()
