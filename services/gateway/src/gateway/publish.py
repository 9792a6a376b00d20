"""Sends the spool's events to JetStream: at least once from here, exactly once in the stream.

A batch keeps its id and bytes through every retry, and JetStream drops a message id that it has
seen within two minutes; after longer outages billing's unique (request_id, seq) does the same.
"""

import asyncio

import nats.errors
from nats.aio.client import Client
from nats.js.errors import Error as JetStreamError
from nats.js.errors import NoStreamResponseError

import observe
from gateway import metrics
from gateway.spool import Spool
from wire import backoff, subjects, usage_stream
from wire.cancellation import raise_if_cancelled

log = observe.get_logger(__name__)

MOST_EVENTS = 100
GATHER_S = 0.02
"""How long an event waits for company; a batch costs the server one write."""
ACK_TIMEOUT_S = 2.0


async def publish_usage(spool: Spool, nc: Client) -> None:
    """Publishes batch after batch until cancelled; a batch is retried for ever."""
    while True:
        raise_if_cancelled()
        await spool.wait_for_events()
        if spool.waiting_events < MOST_EVENTS:
            await asyncio.sleep(GATHER_S)
        batch = spool.next_batch(MOST_EVENTS)
        if batch is None:
            continue
        batch_id, payload = batch
        await _publish_until_acknowledged(nc, batch_id, payload)
        spool.acknowledge(batch_id)


async def publish_once(nc: Client, batch_id: str, payload: bytes) -> None:
    """One attempt: returns when the stream has the message, raises when that is not certain."""
    await nc.jetstream().publish(
        subjects.USAGE_SUBJECT,
        payload,
        timeout=ACK_TIMEOUT_S,
        stream=subjects.USAGE_STREAM,
        headers={"Nats-Msg-Id": batch_id},
    )


async def _publish_until_acknowledged(nc: Client, batch_id: str, payload: bytes) -> None:
    for delay_s in backoff.delays_s():
        try:
            await publish_once(nc, batch_id, payload)
        except (nats.errors.Error, JetStreamError, TimeoutError, OSError) as error:
            metrics.PUBLISH_ATTEMPTS.labels("failed").inc()
            log.warning("usage_not_published", batch_id=batch_id, error=repr(error))
            await asyncio.sleep(delay_s)
            if isinstance(error, NoStreamResponseError):
                await _make_stream(nc)
        else:
            metrics.PUBLISH_ATTEMPTS.labels("acknowledged").inc()
            return


async def _make_stream(nc: Client) -> None:
    """Nobody listens on the subject: the stream is yet to be made, by billing or by a gateway."""
    try:
        await usage_stream.ensure_usage_stream(nc.jetstream())
    except (nats.errors.Error, JetStreamError, TimeoutError, OSError) as error:
        log.warning("usage_stream_unreachable", error=repr(error))
