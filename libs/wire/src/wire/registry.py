"""Follows the registry: who is there, and who is gone.

State comes from the bucket's watch only: a bare get or create of nats-py misreads a key that
expired (nats-py 2.16, `nats/js/kv.py:_get` ignores the server's expiry marker).
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import structlog
from google.protobuf.message import DecodeError
from nats.aio.client import Client

from millrace.v1 import fleet_pb2
from wire import bucket_watch, nats_connection

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class RegistryChange:
    """Process seen (record set) or gone (record None); `revision` grows with each put."""

    key: str
    record: fleet_pb2.ServiceRecord | None
    revision: int


async def follow(nc: Client) -> AsyncGenerator[RegistryChange | None, None]:
    """Yields each change for ever, and None each time the present state has been sent whole.

    A broken watch starts again from the present state; the caller must then drop what was not
    repeated only after a grace period: losing the broker is no proof that a process is gone.
    """
    async with aclosing(bucket_watch.follow(nc, nats_connection.registry_bucket)) as entries:
        async for entry in entries:
            yield None if entry is None else _change(entry.key, entry.value, entry.revision)


def _change(key: str, value: bytes | None, revision: int | None) -> RegistryChange:
    if not value:
        return RegistryChange(key, None, revision or 0)
    try:
        return RegistryChange(key, fleet_pb2.ServiceRecord.FromString(value), revision or 0)
    except DecodeError:
        log.error("registry_record_unreadable", key=key)
        return RegistryChange(key, None, revision or 0)
