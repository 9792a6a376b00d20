"""Starts kvtier: settings, logs, the workers' file, gRPC, Mooncake, and the heartbeat."""

import asyncio
import os

import aiohttp

import observe
from kvtier import store
from kvtier.edge import KvTierEdge, describe
from kvtier.settings import Settings
from kvtier.tier import Tier
from millrace.v1 import kvtier_pb2_grpc
from wire import grpc_edge, ids, nats_connection, stopping
from wire.heartbeat import Heartbeat, new_record

VERSION = "0.1.0"
log = observe.get_logger("kvtier")


def main() -> None:
    """Runs until SIGTERM or SIGINT."""
    settings = Settings()  # type: ignore[call-arg]  # filled from the environment
    instance = ids.new_instance("kvtier")
    observability = observe.setup("kvtier", instance=instance, settings=observe.ObserveSettings())
    try:
        asyncio.run(
            stopping.run_until_stopped(_serve(settings, instance, observability.metrics_url))
        )
    finally:
        observability.close()


async def _serve(settings: Settings, instance: str, metrics_url: str) -> None:
    async with store.owned(settings.state_dir), aiohttp.ClientSession() as session:
        store.write_worker_config(settings)
        tier = Tier(settings, session)
        server, target = await grpc_edge.serve(
            settings.host,
            settings.grpc_port,
            lambda server: kvtier_pb2_grpc.add_KvTierServicer_to_server(KvTierEdge(tier), server),
        )
        grpc_target = f"{settings.reachable_host}:{target.rpartition(':')[2]}"
        log.info("serving", grpc_target=grpc_target, config=str(settings.worker_config_path))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(tier.run(), name="tier")
                tasks.create_task(
                    _register(settings, instance, tier, grpc_target, metrics_url), name="heartbeat"
                )
        finally:
            await server.stop(grpc_edge.STOP_GRACE_S)


async def _register(
    settings: Settings, instance: str, tier: Tier, grpc_target: str, metrics_url: str
) -> None:
    """Beats for ever. A task of its own: the tier serves without NATS."""
    record = new_record("kvtier", instance, settings.cluster, VERSION)
    record.grpc_target = grpc_target
    record.metrics_url = metrics_url
    record.pid = os.getpid()
    record.host = settings.reachable_host
    record.notes["master"] = settings.master_address
    nc = await nats_connection.connect(settings.nats_url, instance)
    heartbeat = Heartbeat(nc, lambda: describe(record, tier))
    tier.tell_changes(heartbeat.beat_now)
    try:
        await heartbeat.run()
    finally:
        await nc.close()


if __name__ == "__main__":
    main()
