"""The one way a service connects to NATS: it waits at start and reconnects for ever."""

import asyncio

import nats
import structlog
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig, StorageType
from nats.js.errors import BucketNotFoundError, NotFoundError
from nats.js.kv import KeyValue

from wire import backoff, subjects

log = structlog.get_logger(__name__)

CONNECT_TIMEOUT_S = 2
RECONNECT_WAIT_S = 0.2


async def connect(url: str, name: str) -> Client:
    """A connection that survives the server: retried at start, reconnected without limit."""
    for delay_s in backoff.delays_s():
        try:
            return await nats.connect(
                url,
                name=name,
                connect_timeout=CONNECT_TIMEOUT_S,
                max_reconnect_attempts=-1,
                reconnect_time_wait=RECONNECT_WAIT_S,
                # What is published while disconnected must fail at once, so that the caller keeps
                # it.
                pending_size=0,
                error_cb=_log_error,
                disconnected_cb=_log_disconnected,
                reconnected_cb=_log_reconnected,
            )
        except (OSError, nats.errors.Error, TimeoutError) as error:
            log.warning(
                "nats_unreachable", url=url, error=repr(error), retry_in_s=round(delay_s, 2)
            )
            await asyncio.sleep(delay_s)
    raise AssertionError("backoff.delays_s ends never")


async def registry_bucket(js: JetStreamContext) -> KeyValue:
    """The membership bucket, made when it is missing: its TTL is the lease of every record.

    In memory on purpose: after a restart of the server every process beats again within two
    seconds, while stale records from disk would bring dead processes back for one TTL.
    """
    try:
        return await js.key_value(subjects.REGISTRY_BUCKET)
    except (BucketNotFoundError, NotFoundError):
        return await js.create_key_value(
            KeyValueConfig(
                bucket=subjects.REGISTRY_BUCKET,
                ttl=subjects.REGISTRY_TTL_S,
                limit_marker_ttl=60,
                storage=StorageType.MEMORY,
            )
        )


async def _log_error(error: Exception) -> None:
    log.warning("nats_error", error=repr(error))


async def _log_disconnected() -> None:
    log.warning("nats_disconnected")


async def _log_reconnected() -> None:
    log.info("nats_reconnected")
