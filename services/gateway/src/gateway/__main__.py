"""`python -m gateway`: reads settings, opens connections, serves, closes."""

import asyncio
import contextlib

import uvloop

import observe
from gateway import metrics
from gateway.choose import RouteSnapshot
from gateway.edge.state import Gateway
from gateway.followers import follow_directory, follow_routes
from gateway.keys import DirectorySnapshot
from gateway.publish import publish_usage
from gateway.serve import serve
from gateway.settings import Settings
from gateway.spool import Spool
from gateway.upstreams import Upstreams, open_session
from millrace.v1 import fleet_pb2, usage_pb2_grpc
from wire import grpc_edge, heartbeat, http_edge, ids, nats_connection, stopping

log = observe.get_logger(__name__)

VERSION = "0.1.0"
LAST_PUBLISH_S = 0.5
"""For the events of the last requests to reach JetStream; what is left is published by the next
start."""


def main() -> None:
    """Runs one gateway until SIGTERM or SIGINT."""
    settings = Settings()
    instance = ids.new_instance("gateway")
    observability = observe.setup("gateway", instance=instance, settings=observe.ObserveSettings())
    try:
        uvloop.run(run(settings, instance, observability.metrics_url))
    finally:
        observability.close()


async def run(settings: Settings, instance: str, metrics_url: str) -> None:
    """Opens everything, serves, and closes in the opposite order."""
    spool = Spool(
        settings.spool_dir,
        max_bytes=settings.spool_max_bytes,
        max_in_flight=settings.max_in_flight,
    )
    metrics.SPOOL_BYTES.set_function(lambda: spool.size_bytes)
    metrics.SPOOL_EVENTS.set_function(lambda: spool.waiting_events)
    stop = stopping.stop_event()
    with contextlib.closing(spool), http_edge.listen(settings.host, settings.http_port) as listener:
        port = listener.getsockname()[1]
        record = heartbeat.new_record("gateway", instance, settings.cluster, VERSION)
        record.http_url = f"http://{settings.reachable_host}:{port}"
        record.metrics_url = metrics_url
        async with (
            open_session() as session,
            grpc_edge.channel(settings.billing_target) as billing,
            asyncio.TaskGroup() as tasks,
        ):
            directory, routes = DirectorySnapshot(), RouteSnapshot()
            gateway = Gateway(
                settings=settings,
                directory=directory,
                routes=routes,
                spool=spool,
                upstreams=Upstreams(session, routes, settings),
                usage=usage_pb2_grpc.UsageStub(billing),
                tasks=tasks,
            )
            background = [
                tasks.create_task(follow_directory(settings.billing_target, instance, directory)),
                tasks.create_task(follow_routes(settings.health_target, instance, routes)),
                tasks.create_task(_use_nats(gateway, record)),
            ]
            log.info("serving", url=record.http_url)
            await serve(gateway, listener, stop)
            await _publish_the_rest(spool)
            for task in background:
                task.cancel()
    log.info("stopped")


async def _use_nats(gateway: Gateway, record: fleet_pb2.ServiceRecord) -> None:
    """Heartbeats and usage; while NATS is away the gateway serves on and the spool keeps the
    usage."""
    nc = await nats_connection.connect(gateway.settings.nats_url, record.instance)

    def describe() -> fleet_pb2.ServiceRecord:
        if gateway.is_stopping:
            record.state = fleet_pb2.SERVICE_STATE_DRAINING
        elif gateway.is_ready:
            record.state = fleet_pb2.SERVICE_STATE_READY
        return record

    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(heartbeat.Heartbeat(nc, describe).run())
            tasks.create_task(publish_usage(gateway.spool, nc))
    finally:
        await nc.close()


async def _publish_the_rest(spool: Spool) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LAST_PUBLISH_S):
            while not spool.is_empty:
                await asyncio.sleep(0.02)


if __name__ == "__main__":
    main()
