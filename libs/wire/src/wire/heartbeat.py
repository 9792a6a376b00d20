"""Keeps this process's record in the registry: a put every two seconds, a delete on a clean exit.

The bucket's TTL is the lease. Nothing here may raise into the service: without NATS the process
goes on serving and its lease ends, which is exactly what watchers must see.
"""

import asyncio
import os
import socket
from collections.abc import Callable

import nats.errors
import structlog
from google.protobuf.timestamp_pb2 import Timestamp
from nats.aio.client import Client

from millrace.v1 import fleet_pb2
from wire import nats_connection, subjects
from wire.cancellation import raise_if_cancelled

log = structlog.get_logger(__name__)

PUT_TIMEOUT_S = 1.5
RETRY_S = 0.3
"""After a beat that NATS did not take: a restarted broker soon knows everyone again."""


def new_record(service: str, instance: str, cluster: str, version: str) -> fleet_pb2.ServiceRecord:
    """A record in state STARTING; the caller fills in addresses and models."""
    started_at = Timestamp()
    started_at.GetCurrentTime()
    return fleet_pb2.ServiceRecord(
        service=service,
        instance=instance,
        cluster=cluster,
        version=version,
        state=fleet_pb2.SERVICE_STATE_STARTING,
        started_at=started_at,
        pid=os.getpid(),
        host=socket.gethostname(),
    )


class Heartbeat:
    """Beats for one process; `describe` is asked at every beat."""

    def __init__(self, nc: Client, describe: Callable[[], fleet_pb2.ServiceRecord]) -> None:
        self._nc = nc
        self._describe = describe
        self._beat_now = asyncio.Event()
        self._is_heard = True

    def beat_now(self) -> None:
        """Sends the next beat at once: call it after a change of state."""
        self._beat_now.set()

    async def run(self) -> None:
        """Beats until cancelled, then withdraws the record."""
        try:
            while True:
                self._beat_now.clear()
                was_taken = await self._beat()
                raise_if_cancelled()
                pause_s = subjects.REGISTRY_BEAT_S if was_taken else RETRY_S
                # Not wait_for: Python 3.11's loses a cancellation that meets the result.
                try:
                    async with asyncio.timeout(pause_s):
                        await self._beat_now.wait()
                except TimeoutError:
                    continue
        finally:
            await asyncio.shield(self._withdraw())

    async def _beat(self) -> bool:
        record = self._describe()
        try:
            async with asyncio.timeout(PUT_TIMEOUT_S):
                bucket = await nats_connection.registry_bucket(self._nc.jetstream())
                key = subjects.registry_key(record.service, record.instance)
                await bucket.put(key, record.SerializeToString())
        except (nats.errors.Error, TimeoutError, OSError) as error:
            if self._is_heard:
                log.warning("heartbeat_failed", error=repr(error))
            self._is_heard = False
            return False
        self._is_heard = True
        return True

    async def _withdraw(self) -> None:
        record = self._describe()
        try:
            async with asyncio.timeout(PUT_TIMEOUT_S):
                bucket = await nats_connection.registry_bucket(self._nc.jetstream())
                await bucket.purge(subjects.registry_key(record.service, record.instance))
        except (nats.errors.Error, TimeoutError, OSError) as error:
            log.info("heartbeat_not_withdrawn", error=repr(error))
