"""Whatever dies, and whenever: no event is lost and none is booked twice.

Each point where a billing process can die is enumerated (a random kill proves nothing: it passes by
luck) and each test asserts that its point was reached.
"""

import asyncio

import pytest

from millrace.v1 import usage_pb2
from tests.fixtures.wait import until
from tests.services.billing.reconcile import PerMillion, check_books
from tests.services.billing.world import Billing, World, usage_event

pytestmark = pytest.mark.fault

PRICE: PerMillion = ("0.15", "0.05", "0.6")
KILL_POINTS = ("kill_after_fetch", "kill_before_commit", "kill_after_commit", "kill_mid_ack")


@pytest.mark.parametrize("point", KILL_POINTS)
async def test_sigkill_loses_and_doubles_nothing(world: World, point: str) -> None:
    events, prices = await _die_at(world, point)

    await world.start()
    await world.until_settled()

    await check_books(world, events, prices)
    assert await world.value("SELECT count(*) FROM event_conflict") == 0


async def test_acknowledging_before_the_commit_would_lose_events(world: World) -> None:
    events, prices = await _die_at(world, "ack_before_commit+kill_before_commit")

    await world.start()
    await world.until_settled()

    assert await world.value("SELECT count(*) FROM usage_event") < len(events)
    with pytest.raises(AssertionError, match="events stored"):
        await check_books(world, events, prices)


async def test_a_crash_after_the_commit_would_double_events_without_the_unique_key(
    world: World,
) -> None:
    events, prices = await _die_at(world, "no_unique_event+kill_after_commit")

    await world.start("no_unique_event")
    await world.until_settled()

    assert await world.value("SELECT count(*) FROM usage_event") > len(events)
    with pytest.raises(AssertionError, match="events stored"):
        await check_books(world, events, prices)


async def test_sigkill_while_parked_events_are_posted(world: World) -> None:
    dying = await world.start("kill_while_booking_parked")
    events = [usage_event("team-a", model="new-model") for _ in range(20)]
    await world.publish(events)
    await world.until_settled()
    await dying.set_price("new-model", *PRICE)
    await world.until_killed_itself(dying)
    parked = await world.value("SELECT count(*) FROM unpriced_event")
    rated = await world.value("SELECT count(*) FROM rated_line")

    await world.start()
    await until(lambda: _is_empty(world, "unpriced_event"), what="parked events posted")

    assert (parked, rated) == (20, 0)
    await check_books(world, events, {event.request_id: PRICE for event in events})


async def test_postgres_may_die_and_come_back(world: World) -> None:
    billing = await world.start()
    await billing.set_price("smollm2", *PRICE)
    before = [usage_event("team-a") for _ in range(5)]
    await world.publish(before)
    await world.until_settled()
    away = [usage_event("team-a") for _ in range(5)]

    world.postgres_server.kill()
    try:
        await world.publish(away)
        await until(lambda: "batch_waits_for_postgres" in billing.process.log())
        refused = await billing.admin.get("/admin/v1/teams")
        health = await billing.admin.get("/healthz")
    finally:
        await asyncio.to_thread(world.postgres_server.start)
    await world.until_settled()

    assert health.status_code == 200
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "database_unavailable"
    assert refused.headers["retry-after"] == "1"
    events = before + away
    await check_books(world, events, {event.request_id: PRICE for event in events})
    assert await billing.create_team("after")
    assert billing.process.exit_code is None


async def test_nats_may_die_and_come_back(world: World) -> None:
    billing = await world.start()
    await billing.set_price("smollm2", *PRICE)
    before = [usage_event("team-a") for _ in range(5)]
    await world.publish(before)
    await world.until_settled()

    world.nats_server.kill()
    try:
        await until(lambda: "nats_disconnected" in billing.process.log())
        # Keys and prices do not need the broker.
        await billing.create_team("meanwhile")
    finally:
        await asyncio.to_thread(world.nats_server.start)
    await until(lambda: world.nc.is_connected, what="the publisher is connected again")
    after = [usage_event("team-a") for _ in range(5)]
    await world.publish(after)
    await world.until_settled()

    events = before + after
    await check_books(world, events, {event.request_id: PRICE for event in events})
    assert billing.process.exit_code is None


async def test_the_order_in_which_things_start_does_not_matter(world: World) -> None:
    event = usage_event("team-a")
    await world.publish([event])
    await asyncio.to_thread(world.postgres_server.stop)
    try:
        billing = world.launch()
        await until(lambda: "postgres_unreachable" in billing.process.log())
        assert billing.process.exit_code is None
    finally:
        await asyncio.to_thread(world.postgres_server.start)
    await billing.until_ready()
    await billing.set_price("smollm2", *PRICE)
    await until(lambda: _is_empty(world, "unpriced_event"), what="the event is posted")
    await world.until_settled()

    await check_books(world, [event], {event.request_id: PRICE})


async def test_a_lost_stream_and_consumer_are_made_again(world: World) -> None:
    billing = await world.start()
    await billing.set_price("smollm2", *PRICE)
    await world.publish([usage_event("team-a")])
    await world.until_settled()
    await world.nc.jetstream().delete_stream("USAGE")

    events = [usage_event("team-a") for _ in range(3)]
    await world.publish(events)
    await until(lambda: _count_is(world, "usage_event", 4), within_s=15, what="4 events stored")


async def test_sigterm_ends_the_process_cleanly_and_soon(world: World) -> None:
    billing = await world.start()
    await world.publish([usage_event("team-a")])

    exit_code = await asyncio.to_thread(billing.process.stop, 5.0)

    assert exit_code == 0


async def _die_at(
    world: World, mutant: str
) -> tuple[list[usage_pb2.UsageEvent], dict[str, PerMillion]]:
    """Runs billing until it kills itself; returns what was sent and its prices."""
    healthy = await world.start()
    await healthy.set_price("smollm2", *PRICE)
    await asyncio.to_thread(healthy.process.stop)
    batches = [[usage_event(f"team-{n % 2}") for n in range(10)] for _ in range(6)]
    await world.publish(*batches)
    dying: Billing = world.launch(mutant)
    await world.until_killed_itself(dying)
    events = [event for batch in batches for event in batch]
    return events, {event.request_id: PRICE for event in events}


async def _count_is(world: World, table: str, rows: int) -> bool:
    return bool(await world.value(f"SELECT count(*) FROM {table}") == rows)


async def _is_empty(world: World, table: str) -> bool:
    return await _count_is(world, table, 0)
