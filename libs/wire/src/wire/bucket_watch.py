"""Follows a NATS KV bucket across everything that can happen to the broker.

nats-py 2.16 repairs a broken watch by itself only after 10 to 20 s without a heartbeat of the
consumer, and never says so (`nats/js/client.py:_JSI.activity_check`): after a restart of the server
a follower would be deaf for that long. Here every reconnect starts a new watch at once.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import nats.errors
import structlog
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.kv import KeyValue

from wire import backoff
from wire.cancellation import raise_if_cancelled

log = structlog.get_logger(__name__)

RECONNECT_CHECK_S = 0.2
"""How soon a reconnect is noticed on a silent bucket; costs one timer per interval."""


async def follow(
    nc: Client, open_bucket: Callable[[JetStreamContext], Awaitable[KeyValue]]
) -> AsyncGenerator[KeyValue.Entry | None, None]:
    """Yields each entry for ever, and None each time the present state has been sent whole.

    The operation "DEL" or "PURGE" says that the key was deleted or that its lease ended.
    """
    delays = backoff.delays_s()
    while True:
        raise_if_cancelled()
        reconnects = nc.stats["reconnects"]
        try:
            watcher = await (await open_bucket(nc.jetstream())).watchall()
            delays = backoff.delays_s()
            try:
                while nc.stats["reconnects"] == reconnects:
                    raise_if_cancelled()
                    # Not watcher.updates: its wait_for loses a cancellation that meets an entry.
                    try:
                        async with asyncio.timeout(RECONNECT_CHECK_S):
                            entry = await anext(watcher)
                    except TimeoutError:
                        continue
                    yield entry
            finally:
                await _stop(watcher)
        except (nats.errors.Error, TimeoutError, OSError) as error:
            log.warning("bucket_watch_broken", error=repr(error))
            await asyncio.sleep(next(delays))


async def _stop(watcher: KeyValue.KeyWatcher) -> None:
    try:
        await watcher.stop()  # type: ignore[no-untyped-call]  # not annotated in nats-py
    except (nats.errors.Error, TimeoutError, OSError) as error:
        # The connection that carried it is gone, and the subscription with it.
        log.debug("bucket_watch_not_stopped", error=repr(error))
