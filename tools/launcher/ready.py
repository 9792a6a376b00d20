"""Readiness as the services tell it themselves: their records in the NATS registry."""

import asyncio
from collections.abc import Callable, Collection

from millrace.v1 import fleet_pb2
from wire import nats_connection, registry

POLL_S = 0.05


class ReadyPids:
    """The pids of processes whose record says READY, kept up to date by `follow`."""

    def __init__(self) -> None:
        self._pid_of_key: dict[str, int] = {}

    def __contains__(self, pid: object) -> bool:
        return pid in self._pid_of_key.values()

    async def follow(self, nats_url: str) -> None:
        """Runs until cancelled; waits for NATS when it is not there yet."""
        nc = await nats_connection.connect(nats_url, "launcher")
        try:
            async for change in registry.follow(nc):
                if change is not None:
                    self._apply(change)
        finally:
            await nc.close()

    def _apply(self, change: registry.RegistryChange) -> None:
        record = change.record
        if record is not None and record.state == fleet_pb2.SERVICE_STATE_READY:
            self._pid_of_key[change.key] = record.pid
        else:
            self._pid_of_key.pop(change.key, None)


async def until_ready(nats_url: str, pids: Callable[[], Collection[int]]) -> None:
    """Returns when all these processes are READY; the caller sets the deadline.

    `pids` is asked again and again, because a process that is restarted has another one.
    """
    ready = ReadyPids()
    following = asyncio.create_task(ready.follow(nats_url))
    try:
        while not all(pid in ready for pid in pids()):
            if following.done():
                following.result()
            await asyncio.sleep(POLL_S)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
