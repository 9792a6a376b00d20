"""Membership over a real NATS server."""

import asyncio
import contextlib

import pytest

from millrace.v1 import fleet_pb2
from tests.fixtures.wait import until
from wire import nats_connection, registry
from wire.heartbeat import Heartbeat, new_record
from wire.ids import new_instance


async def follow_into(nc, seen):
    async for change in registry.follow(nc):
        if change is not None:
            seen[change.key] = change.record


@contextlib.asynccontextmanager
async def running(coroutine):
    task = asyncio.create_task(coroutine)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_process_is_seen_at_once_and_gone_at_once_after_a_clean_stop(nats_server):
    nc = await nats_connection.connect(nats_server.url, "test")
    seen: dict[str, fleet_pb2.ServiceRecord | None] = {}
    record = new_record("router", new_instance("router"), "local", "0")
    key = f"router.{record.instance}"

    async with running(follow_into(nc, seen)):
        async with running(Heartbeat(nc, lambda: record).run()):
            await until(lambda: seen.get(key) is not None, within_s=3)
        await until(lambda: key in seen and seen[key] is None, within_s=2)

    await nc.close()


async def test_a_change_of_state_travels_without_waiting_for_the_next_beat(nats_server):
    nc = await nats_connection.connect(nats_server.url, "test")
    seen: dict[str, fleet_pb2.ServiceRecord | None] = {}
    record = new_record("router", new_instance("router"), "local", "0")
    key = f"router.{record.instance}"
    heartbeat = Heartbeat(nc, lambda: record)

    async with running(follow_into(nc, seen)), running(heartbeat.run()):
        await until(lambda: seen.get(key) is not None, within_s=3)
        record.state = fleet_pb2.SERVICE_STATE_DRAINING
        heartbeat.beat_now()

        def is_draining() -> bool:
            current = seen.get(key)
            return current is not None and current.state == fleet_pb2.SERVICE_STATE_DRAINING

        await until(is_draining, within_s=1)

    await nc.close()


@pytest.mark.fault
async def test_a_silent_process_is_gone_within_one_ttl(nats_server):
    nc = await nats_connection.connect(nats_server.url, "test")
    other = await nats_connection.connect(nats_server.url, "silent")
    seen: dict[str, fleet_pb2.ServiceRecord | None] = {}
    record = new_record("router", new_instance("router"), "local", "0")
    key = f"router.{record.instance}"

    async with running(follow_into(nc, seen)):
        bucket = await nats_connection.registry_bucket(other.jetstream())
        await bucket.put(key, record.SerializeToString())
        await until(lambda: seen.get(key) is not None, within_s=3)
        await until(lambda: key in seen and seen[key] is None, within_s=8)

    await other.close()
    await nc.close()
