"""Follows the registry: who is there, and who is gone.

State comes from the bucket's watch only: a bare get or create of nats-py misreads a key that expired
(nats-py 2.16, `nats/js/kv.py:_get` ignores the server's expiry marker).
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import nats.errors
import structlog
from google.protobuf.message import DecodeError
from nats.aio.client import Client
from nats.js.errors import Error as JetStreamError

from millrace.v1 import fleet_pb2
from wire import backoff, nats_connection

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class RegistryChange:
    """A process that was seen (record set) or is gone (record None); `revision` grows with each put."""

    key: str
    record: fleet_pb2.ServiceRecord | None
    revision: int


async def follow(nc: Client) -> AsyncIterator[RegistryChange | None]:
    """Yields each change for ever, and None once each time the present state has been sent whole.

    A broken watch starts again from the present state; the caller must then drop what was not repeated
    only after a grace period: losing the broker is no proof that a process is gone.
    """
    for delay_s in backoff.delays_s():
        try:
            bucket = await nats_connection.registry_bucket(nc.jetstream())
            watcher = await bucket.watchall()
            try:
                async for entry in watcher:
                    yield None if entry is None else _change(entry.key, entry.value, entry.revision)
            finally:
                await watcher.stop()
        except (nats.errors.Error, JetStreamError, TimeoutError, OSError) as error:
            log.warning("registry_watch_broken", error=repr(error))
        await asyncio.sleep(delay_s)


def _change(key: str, value: bytes | None, revision: int | None) -> RegistryChange:
    if not value:
        return RegistryChange(key, None, revision or 0)
    try:
        return RegistryChange(key, fleet_pb2.ServiceRecord.FromString(value), revision or 0)
    except DecodeError:
        log.error("registry_record_unreadable", key=key)
        return RegistryChange(key, None, revision or 0)
