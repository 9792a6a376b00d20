"""Cordons in NATS: a KV bucket in a file, so that they outlive health, NATS and the night.

Key: instance. Value: `millrace.v1.CordonRequest`. Every health process follows the
bucket, so all agree.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig, StorageType
from nats.js.errors import BucketNotFoundError, NotFoundError
from nats.js.kv import KeyValue

from health.errors import CordonNotKept
from millrace.v1 import fleet_pb2
from wire import bucket_watch, subjects

WRITE_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class CordonChange:
    """An instance that is cordoned from now on, or not any more."""

    instance: str
    is_cordoned: bool


async def follow_cordons(nc: Client) -> AsyncGenerator[CordonChange | None, None]:
    """Each change for ever, and None each time the present state has been sent whole."""
    async with aclosing(bucket_watch.follow(nc, _bucket)) as entries:
        async for entry in entries:
            yield None if entry is None else CordonChange(entry.key, entry.operation is None)


async def keep_cordon(nc: Client, request: fleet_pb2.CordonRequest) -> None:
    """Writes a cordon; raises CordonNotKept when NATS did not confirm it."""
    try:
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            bucket = await _bucket(nc.jetstream())
            await bucket.put(request.instance, request.SerializeToString())
    except (nats.errors.Error, TimeoutError, OSError) as error:
        raise CordonNotKept(request.instance, repr(error)) from error


async def drop_cordon(nc: Client, instance: str) -> None:
    """Removes a cordon if there is one; raises CordonNotKept when NATS did not confirm."""
    try:
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await (await _bucket(nc.jetstream())).purge(instance)
    except (nats.errors.Error, TimeoutError, OSError) as error:
        raise CordonNotKept(instance, repr(error)) from error


async def _bucket(js: JetStreamContext) -> KeyValue:
    try:
        return await js.key_value(subjects.CORDONS_BUCKET)
    except (BucketNotFoundError, NotFoundError):
        return await js.create_key_value(
            KeyValueConfig(bucket=subjects.CORDONS_BUCKET, storage=StorageType.FILE)
        )
