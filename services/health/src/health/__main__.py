"""Starts health: settings, logs, NATS, the gRPC server, and the loops that follow the registry."""

import asyncio
import os

import observe
from health.edge import FleetEdge
from health.settings import Settings
from health.watch import FleetWatch
from millrace.v1 import fleet_pb2, fleet_pb2_grpc
from wire import grpc_edge, ids, nats_connection, stopping
from wire.heartbeat import Heartbeat, new_record

VERSION = "0.1.0"
log = observe.get_logger("health")


def main() -> None:
    """Runs until SIGTERM or SIGINT."""
    settings = Settings()
    instance = ids.new_instance("health")
    observability = observe.setup("health", instance=instance, settings=observe.ObserveSettings())
    try:
        asyncio.run(
            stopping.run_until_stopped(_serve(settings, instance, observability.metrics_url))
        )
    finally:
        observability.close()


async def _serve(settings: Settings, instance: str, metrics_url: str) -> None:
    nc = await nats_connection.connect(settings.nats_url, instance)
    watch = FleetWatch(nc)
    server, target = await grpc_edge.serve(
        settings.host,
        settings.grpc_port,
        lambda server: fleet_pb2_grpc.add_FleetServicer_to_server(FleetEdge(watch), server),
    )
    record = new_record("health", instance, settings.cluster, VERSION)
    record.grpc_target = f"{settings.reachable_host}:{target.rpartition(':')[2]}"
    record.metrics_url = metrics_url
    record.pid = os.getpid()
    record.host = settings.reachable_host
    heartbeat = Heartbeat(nc, lambda: record)
    log.info("serving", grpc_target=record.grpc_target)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(heartbeat.run(), name="heartbeat")
            tasks.create_task(watch.follow_registry(), name="registry")
            tasks.create_task(watch.follow_cordons(), name="cordons")
            tasks.create_task(watch.keep_time(), name="time")
            await watch.has_settled.wait()
            record.state = fleet_pb2.SERVICE_STATE_READY
            heartbeat.beat_now()
    finally:
        await server.stop(grpc_edge.STOP_GRACE_S)
        await nc.close()


if __name__ == "__main__":
    main()
