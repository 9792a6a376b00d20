"""The router process: reads settings, connects to the cluster, serves, closes."""

import asyncio

import uvicorn
import uvloop
from dynamo.runtime import DistributedRuntime
from nats.aio.client import Client

import observe
from millrace.v1 import fleet_pb2
from router.constrain import Constrainer
from router.edge.app import build_app
from router.render import Renderer
from router.service import RouterService
from router.settings import RouterSettings
from router.workers import Workers
from toolcall.compiling.checker import GrammarChecker
from wire import http_edge, nats_connection, registry, stopping
from wire.heartbeat import Heartbeat, new_record
from wire.ids import new_instance

log = observe.get_logger(__name__)

VERSION = "0.1.0"
STOP_GRACE_S = 3
KEEP_ALIVE_S = 75
"""The gateway keeps connections; closing one under it would look like a failure."""


async def run(settings: RouterSettings, instance: str, metrics_url: str) -> None:
    """Serves until SIGTERM or SIGINT."""
    stop = stopping.stop_event()
    renderer = Renderer(settings.model_dir, settings.context_tokens, settings.tool_format)
    checker = GrammarChecker(settings.model_dir, budget_s=settings.grammar_budget_s)
    # Before Dynamo's runtime, which does not wait for NATS by itself.
    nc = await nats_connection.connect(settings.nats_url, instance)
    runtime = DistributedRuntime(
        asyncio.get_running_loop(),
        settings.discovery_backend,
        settings.request_plane,
        event_plane=settings.event_plane,
    )
    workers = Workers(settings.block_tokens)
    await workers.open(runtime, settings.dynamo_namespace)
    constrainer = Constrainer(renderer, checker)
    server = _http_server(RouterService(settings, renderer, constrainer, workers))
    await checker.start()
    try:
        with http_edge.listen(settings.host, settings.http_port) as listener:
            record = _record(settings, instance, metrics_url, listener.getsockname()[1])
            heartbeat = Heartbeat(nc, lambda: record)
            async with asyncio.TaskGroup() as tasks:
                background = [
                    tasks.create_task(workers.follow_indexes(runtime, settings.dynamo_namespace)),
                    tasks.create_task(_follow_registry(nc, workers)),
                    tasks.create_task(heartbeat.run()),
                ]
                serving = tasks.create_task(server.serve([listener]))
                log.info("router_listening", url=record.http_url)
                await stop.wait()
                record.state = fleet_pb2.SERVICE_STATE_DRAINING
                heartbeat.beat_now()
                server.should_exit = True
                await serving
                for task in background:
                    task.cancel()
    finally:
        await checker.close()
        await workers.controls.close()
        await nc.close()
        runtime.shutdown()


def _http_server(service: RouterService) -> http_edge.HttpServer:
    return http_edge.HttpServer(
        uvicorn.Config(
            build_app(service),
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=STOP_GRACE_S,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
    )


def _record(
    settings: RouterSettings, instance: str, metrics_url: str, port: int
) -> fleet_pb2.ServiceRecord:
    record = new_record("router", instance, settings.cluster, VERSION)
    record.http_url = f"http://{settings.advertise_host or settings.host}:{port}"
    record.metrics_url = metrics_url
    record.state = fleet_pb2.SERVICE_STATE_READY
    record.models.add(
        name=settings.model_name, pool=settings.pool, context_tokens=settings.context_tokens
    )
    return record


async def _follow_registry(nc: Client, workers: Workers) -> None:
    """Keeps which workers drain and where their control ports are.

    Who vanishes is Dynamo's discovery to tell.
    """
    worker_ids: dict[str, int] = {}
    async for change in registry.follow(nc):
        if change is None:
            continue
        if change.record is None:
            worker_id = worker_ids.pop(change.key, 0)
            workers.draining.discard(worker_id)
            workers.controls.forget(worker_id)
        elif worker_id := change.record.worker_id:
            worker_ids[change.key] = worker_id
            workers.controls.learn(worker_id, change.record.grpc_target)
            if change.record.state == fleet_pb2.SERVICE_STATE_DRAINING:
                workers.draining.add(worker_id)
            else:
                workers.draining.discard(worker_id)


def main() -> None:
    """Entry point of `python -m router`."""
    settings = RouterSettings()  # type: ignore[call-arg]  # filled from the environment
    instance = new_instance("router")
    observability = observe.setup("router", instance=instance, settings=observe.ObserveSettings())
    try:
        uvloop.run(run(settings, instance, observability.metrics_url))
    finally:
        observability.close()


if __name__ == "__main__":
    main()
