"""The router process: reads settings, connects to the cluster, serves, closes."""

import asyncio
import os
import signal

import uvicorn
import uvloop
from dynamo.runtime import DistributedRuntime
from nats.aio.client import Client

import observe
from millrace.v1 import fleet_pb2
from router.edge.app import build_app
from router.render import Renderer
from router.service import RouterService
from router.settings import RouterSettings
from router.workers import Workers
from wire import nats_connection, registry
from wire.heartbeat import Heartbeat, new_record
from wire.ids import new_instance

log = observe.get_logger(__name__)

VERSION = "0.1.0"
STOP_GRACE_S = 4


async def run() -> None:
    """Serves until SIGTERM or SIGINT."""
    settings = RouterSettings()  # type: ignore[call-arg]  # filled from the environment
    instance = new_instance("router")
    observability = observe.setup("router", instance=instance, settings=observe.ObserveSettings())
    renderer = Renderer(settings.model_dir, settings.context_tokens)
    nc = await nats_connection.connect(settings.nats_url, instance)
    runtime = DistributedRuntime(
        asyncio.get_running_loop(),
        settings.discovery_backend,
        settings.request_plane,
        event_plane=settings.event_plane,
    )
    workers = Workers(settings.block_tokens)
    await workers.open(runtime, settings.dynamo_namespace)
    service = RouterService(settings, renderer, workers)
    server = uvicorn.Server(
        uvicorn.Config(
            build_app(service),
            host=settings.host,
            port=settings.http_port,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=STOP_GRACE_S,
            # The gateway keeps connections; closing them under it would look like a failure.
            timeout_keep_alive=75,
        )
    )
    record = _record(settings, instance, observability.metrics_url)
    try:
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(workers.follow_indexes(runtime, settings.dynamo_namespace)),
                tasks.create_task(_follow_draining(nc, workers)),
                tasks.create_task(_beat_when_listening(server, nc, record, settings)),
            ]
            await server.serve()
            for task in background:
                task.cancel()
    finally:
        await nc.close()
        runtime.shutdown()
        observability.close()


def _record(settings: RouterSettings, instance: str, metrics_url: str) -> fleet_pb2.ServiceRecord:
    record = new_record("router", instance, settings.cluster, VERSION)
    record.metrics_url, record.pid = metrics_url, os.getpid()
    record.models.add(
        name=settings.model_name, pool=settings.pool, context_tokens=settings.context_tokens
    )
    return record


async def _beat_when_listening(
    server: uvicorn.Server, nc: Client, record: fleet_pb2.ServiceRecord, settings: RouterSettings
) -> None:
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    record.http_url = f"http://{settings.advertise_host or settings.host}:{port}"
    record.state = fleet_pb2.SERVICE_STATE_READY
    log.info("router_listening", url=record.http_url)
    await Heartbeat(nc, lambda: _current(server, record)).run()


def _current(server: uvicorn.Server, record: fleet_pb2.ServiceRecord) -> fleet_pb2.ServiceRecord:
    if server.should_exit:
        record.state = fleet_pb2.SERVICE_STATE_DRAINING
    return record


async def _follow_draining(nc: Client, workers: Workers) -> None:
    """Keeps the set of workers that say they drain; who vanishes is Dynamo's discovery to tell."""
    worker_ids: dict[str, int] = {}
    async for change in registry.follow(nc):
        if change is None:
            continue
        if change.record is None:
            workers.draining.discard(worker_ids.pop(change.key, 0))
        elif worker_id := change.record.worker_id:
            worker_ids[change.key] = worker_id
            if change.record.state == fleet_pb2.SERVICE_STATE_DRAINING:
                workers.draining.add(worker_id)
            else:
                workers.draining.discard(worker_id)


def main() -> None:
    """Entry point of `python -m router`."""
    # Dynamo installs its own handlers on first use; uvicorn's must stay the ones that stop us.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    uvloop.run(run())


if __name__ == "__main__":
    main()
