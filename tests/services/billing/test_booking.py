"""Each usage event is booked exactly once at the right price, or kept apart where it is seen."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from millrace.v1 import usage_pb2
from tests.fixtures.wait import until
from tests.services.billing.reconcile import PerMillion, check_books
from tests.services.billing.world import World, identity, usage_event
from wire import ids

PRICE: PerMillion = ("0.15", "0.05", "0.6")
NEW_PRICE: PerMillion = ("0.123456789", "0.000000001", "999999999.999999999")


async def test_events_are_rated_and_posted_to_the_last_digit(world: World) -> None:
    billing = await world.start()
    teams = [await billing.create_team("acme"), await billing.create_team("globex")]
    await billing.set_price("smollm2", *PRICE)
    await billing.set_price("huge/model", *NEW_PRICE)
    events = [usage_event(teams[n % 2], prompt=100 + n, completion=n) for n in range(250)]
    large = usage_event(
        teams[0], model="huge/model", prompt=987_654_321, cached=123_456_789, completion=7_777_777
    )
    last_month = datetime.now(UTC).replace(day=1) - timedelta(days=3)
    late = usage_event(teams[0], occurred_at=last_month)

    await world.publish(events[:100], events[100:], [large], [late])
    await world.until_settled()

    sent = [*events, large, late]
    prices = {event.request_id: PRICE for event in sent} | {large.request_id: NEW_PRICE}
    await check_books(world, sent, prices)
    periods = await world.value("SELECT count(DISTINCT period) FROM journal")
    assert periods == 2


@pytest.mark.engine
async def test_float_arithmetic_would_not_pass(world: World) -> None:
    billing = await world.start("float_money")
    team_id = await billing.create_team()
    await billing.set_price("smollm2", *NEW_PRICE)
    event = usage_event(team_id, prompt=987_654_321, cached=123_456_789, completion=7_777_777)

    await world.publish([event])
    await world.until_settled()

    with pytest.raises(AssertionError, match="was booked"):
        await check_books(world, [event], {event.request_id: NEW_PRICE})


async def test_events_published_before_billing_ever_started_are_booked(world: World) -> None:
    events = [usage_event("team-early") for _ in range(5)]
    await world.publish(events)

    billing = await world.start()
    await billing.set_price("smollm2", *PRICE)

    await _until_posted(world, len(events))
    await check_books(world, events, {event.request_id: PRICE for event in events})


async def test_a_duplicate_changes_nothing(world: World) -> None:
    billing = await world.start()
    await billing.set_price("smollm2", *PRICE)
    events = [usage_event("team-a", seq=n % 2) for n in range(10)]

    # Twice in one batch, again in another, and once more after all of it was booked.
    await world.publish([*events, *events], events)
    await world.until_settled()
    await world.publish(events)
    await world.until_settled()

    await check_books(world, events, {event.request_id: PRICE for event in events})
    assert await world.value("SELECT count(*) FROM event_conflict") == 0


@pytest.mark.engine
async def test_without_its_unique_key_the_ledger_would_double(world: World) -> None:
    billing = await world.start("no_unique_event")
    await billing.set_price("smollm2", *PRICE)
    events = [usage_event("team-a") for _ in range(10)]

    await world.publish(events)
    await world.until_settled()
    await world.publish(events)
    await world.until_settled()

    with pytest.raises(AssertionError, match="20 events stored, 10 sent"):
        await check_books(world, events, {event.request_id: PRICE for event in events})


async def test_two_processes_share_the_stream_and_book_each_event_once(world: World) -> None:
    first, second = await asyncio.gather(world.start(), world.start())
    await first.set_price("smollm2", *PRICE)
    batches = [[usage_event(f"team-{n % 3}") for n in range(40)] for _ in range(30)]
    events = [event for batch in batches for event in batch]

    # Each event goes out twice, in batches that overlap: the processes compete for the keys.
    shifted = [events[n : n + 40] for n in range(20, len(events), 40)]
    await world.publish(*(batch for pair in zip(batches, shifted, strict=True) for batch in pair))
    await world.until_settled()

    await check_books(world, events, {event.request_id: PRICE for event in events})
    assert first.process.exit_code is None
    assert second.process.exit_code is None


async def test_another_payload_under_a_known_id_is_kept_apart_and_logged(world: World) -> None:
    billing = await world.start()
    await billing.set_price("smollm2", *PRICE)
    event = usage_event("team-a")
    other = usage_event("team-a", request_id=event.request_id, completion=999)

    await world.publish([event])
    await world.until_settled()
    await world.publish([other], [other])
    await world.until_settled()

    await check_books(world, [event], {event.request_id: PRICE})
    assert await _conflicts(world) == [(identity(event), other.SerializeToString())]
    assert billing.process.log().count('"event_conflict"') >= 1
    assert event.request_id in billing.process.log()


async def test_a_conflict_inside_one_batch_is_kept_apart_too(world: World) -> None:
    billing = await world.start()
    await billing.set_price("smollm2", *PRICE)
    event = usage_event("team-a")
    other = usage_event("team-a", request_id=event.request_id, completion=999)

    await world.publish([event, other])
    await world.until_settled()

    await check_books(world, [event], {event.request_id: PRICE})
    assert await _conflicts(world) == [(identity(event), other.SerializeToString())]


@pytest.mark.engine
async def test_a_dropped_conflict_would_be_noticed(world: World) -> None:
    await world.start("conflict_dropped")
    event = usage_event("team-a")
    other = usage_event("team-a", request_id=event.request_id, completion=999)

    await world.publish([event], [other])
    await world.until_settled()

    assert await _conflicts(world) == []


async def test_what_cannot_be_read_is_kept_and_the_rest_is_booked(world: World) -> None:
    billing = await world.start()
    await billing.set_price("smollm2", *PRICE)
    good = usage_event("team-a")
    bad = [
        usage_event("team-a", request_id="not-a-uuid"),
        usage_event("", request_id=ids.new_request_id()),
        usage_event("team-a", prompt=3, cached=4),
        usage_event("team-a", prompt=2**63),
        usage_event("team\0a"),
        usage_event("team-a", model="m" * 1_000),
    ]

    await world.publish_bytes(b"\xff\xff no protobuf")
    await world.publish_bytes(b"")
    await world.publish([bad[0], good, *bad[1:]])
    await world.publish_bytes(b"\xff\xff no protobuf")
    await world.until_settled()

    await check_books(world, [good], {good.request_id: PRICE})
    assert await _dead_letters(world) == sorted(
        [b"\xff\xff no protobuf", b"", *(event.SerializeToString() for event in bad)]
    )


@pytest.mark.engine
async def test_a_dropped_dead_letter_would_be_noticed(world: World) -> None:
    await world.start("dead_letter_dropped")

    await world.publish_bytes(b"\xff\xff no protobuf")
    await world.until_settled()

    assert await _dead_letters(world) == []


async def test_an_event_that_postgres_refuses_does_not_hold_up_the_others(world: World) -> None:
    billing = await world.start()
    await billing.set_price("smollm2", *PRICE)
    async with world.db() as db:
        await db.execute("ALTER TABLE usage_event ADD CHECK (model <> 'refused')")
    good = [usage_event("team-a") for _ in range(7)]
    refused = usage_event("team-a", model="refused")

    await world.publish([*good[:3], refused, *good[3:]])
    await world.until_settled()

    await check_books(world, good, {event.request_id: PRICE for event in good})
    assert await _dead_letters(world) == [refused.SerializeToString()]


async def test_an_unpriced_event_waits_and_is_posted_once_a_price_is_set(world: World) -> None:
    billing = await world.start()
    await billing.set_price("smollm2", *PRICE)
    priced = usage_event("team-a")
    unpriced = [usage_event("team-a", model="new-model") for _ in range(3)]

    await world.publish([unpriced[0], priced, *unpriced[1:]])
    await world.until_settled()
    parked = await world.value("SELECT count(*) FROM unpriced_event")
    posted_before = await world.value("SELECT count(DISTINCT request_id) FROM rated_line")
    await billing.set_price("new-model", *NEW_PRICE)
    await _until_posted(world, 4)

    assert (parked, posted_before) == (3, 1)
    assert await world.value("SELECT count(*) FROM unpriced_event") == 0
    prices = {event.request_id: NEW_PRICE for event in unpriced} | {priced.request_id: PRICE}
    await check_books(world, [priced, *unpriced], prices)


@pytest.mark.engine
async def test_dropping_an_unpriced_event_would_be_noticed(world: World) -> None:
    billing = await world.start("unpriced_dropped")
    event = usage_event("team-a", model="new-model")

    await world.publish([event])
    await world.until_settled()
    await billing.set_price("new-model", *PRICE)

    assert await world.value("SELECT count(*) FROM usage_event") == 1
    assert await world.value("SELECT count(*) FROM unpriced_event") == 0
    with pytest.raises(AssertionError):
        await check_books(world, [event], {event.request_id: PRICE})


async def test_an_event_without_tokens_needs_no_price(world: World) -> None:
    await world.start()
    event = usage_event("team-a", model="new-model", prompt=0, cached=0, completion=0)

    await world.publish([event])
    await world.until_settled()

    assert await world.value("SELECT count(*) FROM usage_event") == 1
    assert await world.value("SELECT count(*) FROM unpriced_event") == 0
    assert await world.value("SELECT count(*) FROM posting") == 0


async def test_an_event_costs_what_the_price_was_when_it_was_admitted(world: World) -> None:
    events, prices = await _send_around_a_price_change(world, mutant=None)

    await check_books(world, events, prices)


@pytest.mark.engine
async def test_rating_by_the_price_of_today_would_be_noticed(world: World) -> None:
    events, prices = await _send_around_a_price_change(world, mutant="price_of_today")

    with pytest.raises(AssertionError, match="was booked"):
        await check_books(world, events, prices)


async def _send_around_a_price_change(
    world: World, mutant: str | None
) -> tuple[list[usage_pb2.UsageEvent], dict[str, PerMillion]]:
    """Sends, after a price change, events admitted before, at and after it; and their prices."""
    billing = await world.start(mutant)
    first = await billing.set_price("smollm2", *PRICE)
    second = await billing.set_price("smollm2", *NEW_PRICE)
    set_at = datetime.fromisoformat(first["effective_from"])
    changed_at = datetime.fromisoformat(second["effective_from"])
    tick = timedelta(microseconds=1)
    before_any_price = set_at - timedelta(days=1)
    old = [usage_event("a", occurred_at=at) for at in (before_any_price, set_at, changed_at - tick)]
    new = [usage_event("a", occurred_at=at) for at in (changed_at, changed_at + tick)]

    await world.publish([*new, *old])
    await world.until_settled()

    prices = {event.request_id: PRICE for event in old}
    prices |= {event.request_id: NEW_PRICE for event in new}
    return [*old, *new], prices


async def _until_posted(world: World, events: int) -> None:
    async def is_posted() -> bool:
        query = "SELECT count(DISTINCT (request_id, seq)) FROM rated_line"
        return bool(await world.value(query) == events)

    await until(is_posted, what=f"{events} events posted")


async def _conflicts(world: World) -> list[tuple[object, bytes]]:
    async with world.db() as db:
        rows = await db.fetch("SELECT request_id, seq, payload FROM event_conflict")
    return [((row["request_id"], row["seq"]), row["payload"]) for row in rows]


async def _dead_letters(world: World) -> list[bytes]:
    async with world.db() as db:
        return sorted(row["payload"] for row in await db.fetch("SELECT payload FROM dead_letter"))
