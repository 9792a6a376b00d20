"""Takes usage batches from JetStream and books them in Postgres.

Invariant: a message is acknowledged only after the transaction that booked it has committed. A
crash anywhere in between means redelivery, and the unique event id makes a redelivery change
nothing.
"""

import asyncio
import contextlib
import time

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

import observe
from billing import metrics
from billing.events import DeadLetter, Incoming, read_messages
from billing.store import ledger as ledger_store
from billing.store.database import brief, is_about_content
from wire import backoff, subjects
from wire.cancellation import raise_if_cancelled
from wire.usage_stream import ensure_usage_stream

log = observe.get_logger(__name__)

WAIT_S = 2.0
"""One pull; also how long a pull that was lost with the broker delays the next batch."""
GATHER_S = 0.02
"""After the first message: how long to gather more for the same transaction."""
MESSAGES_PER_TRANSACTION = 50
"""Of up to 100 events each. The gatherer stops here; the rest waits in the stream."""
MAX_UNACKNOWLEDGED = 1_000
"""Messages handed out and not acknowledged, over all billing processes together."""


async def consume(nc: Client, engine: AsyncEngine, ack_wait_s: float) -> None:
    """Books for ever; a broken subscription is made anew, with stream and consumer if need be."""
    delays = backoff.delays_s()
    while True:
        try:
            subscription = await subscribe(nc, ack_wait_s)
            while True:
                raise_if_cancelled()
                messages = await fetch(subscription)
                if messages:
                    await settle(engine, messages)
                delays = backoff.delays_s()
        except (nats.errors.Error, TimeoutError, OSError) as error:
            log.warning("usage_consumer_broken", error=repr(error))
        await asyncio.sleep(next(delays))


async def subscribe(nc: Client, ack_wait_s: float) -> JetStreamContext.PullSubscription:
    """The durable consumer that all billing processes share."""
    js = nc.jetstream()
    await ensure_usage_stream(js)
    await js.add_consumer(
        subjects.USAGE_STREAM,
        ConsumerConfig(
            durable_name=subjects.USAGE_CONSUMER,
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ack_wait_s,
            max_ack_pending=MAX_UNACKNOWLEDGED,
        ),
    )
    return await js.pull_subscribe_bind(subjects.USAGE_CONSUMER, subjects.USAGE_STREAM)


async def fetch(subscription: JetStreamContext.PullSubscription) -> list[Msg]:
    """The next messages, or none after a while."""
    # One first: a larger pull would sit on its first message until its time is over (nats-py 2.16,
    # `PullSubscription._fetch_n`).
    try:
        messages = await subscription.fetch(1, WAIT_S)
    except TimeoutError:
        return []
    with contextlib.suppress(TimeoutError):
        messages += await subscription.fetch(MESSAGES_PER_TRANSACTION - 1, GATHER_S)
    return messages


async def settle(engine: AsyncEngine, messages: list[Msg]) -> None:
    """Books these messages, then acknowledges them."""
    began_s = time.monotonic()
    with observe.tracer().start_as_current_span("billing.book"):
        await book(engine, read_messages([message.data for message in messages]))
    metrics.POST_SECONDS.observe(time.monotonic() - began_s)
    await acknowledge(messages)


async def acknowledge(messages: list[Msg]) -> None:
    """Tells the broker that these are done; what it misses comes again and changes nothing."""
    for message in messages:
        await message.ack()


async def book(engine: AsyncEngine, incoming: Incoming) -> None:
    """Books these in one transaction; what Postgres refuses for its content is found by halving."""
    try:
        booked = await _commit(engine, incoming)
    except DBAPIError as error:
        if not incoming.events:
            raise
        log.error("events_refused", events=len(incoming.events), error=brief(error))
        for part in _parts(incoming, brief(error)):
            await book(engine, part)
    else:
        _report(booked)


def _parts(incoming: Incoming, refusal: str) -> list[Incoming]:
    events = incoming.events
    if len(events) == 1:
        refused = DeadLetter(events[0].payload, refusal)
        return [Incoming([], [*incoming.dead_letters, refused])]
    middle = len(events) // 2
    return [Incoming(events[:middle], incoming.dead_letters), Incoming(events[middle:], [])]


async def _commit(engine: AsyncEngine, incoming: Incoming) -> ledger_store.Booked:
    # Retried in place, for ever: the batch stays unacknowledged and nothing else is fetched.
    for delay_s in backoff.delays_s():
        try:
            async with engine.begin() as db:
                return await ledger_store.book(db, incoming)
        except (DBAPIError, OSError, TimeoutError) as error:
            if isinstance(error, DBAPIError) and is_about_content(error):
                raise
            metrics.POST_RETRIES.inc()
            log.warning("batch_waits_for_postgres", error=brief(error))
            await asyncio.sleep(delay_s)
    raise AssertionError("backoff.delays_s ends never")


def _report(booked: ledger_store.Booked) -> None:
    metrics.EVENTS_POSTED.inc(booked.posted)
    metrics.EVENTS_DUPLICATE.inc(booked.duplicates)
    for event in booked.conflicts:
        metrics.EVENT_CONFLICTS.inc()
        log.error("event_conflict", event_id=event, kept_in="event_conflict")
    for reason in booked.dead_letters:
        metrics.DEAD_LETTERS.inc()
        log.error("dead_letter", reason=reason, kept_in="dead_letter")
    if booked.parked:
        log.error("events_without_price", events=booked.parked, kept_in="unpriced_event")
