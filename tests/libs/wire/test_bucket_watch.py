"""A watch ends when it is cancelled, whichever of nats-py's awaits the cancellation meets."""

import asyncio
from types import SimpleNamespace

import pytest

from wire import bucket_watch


class SilentWatcher:
    """A bucket in which nothing happens."""

    async def __anext__(self):
        await asyncio.sleep(10)

    async def stop(self):
        pass


class Bucket:
    """Opened with a cancellation swallowed, as Python 3.11's wait_for does in nats-py."""

    def __init__(self, swallows):
        self._swallows = swallows

    async def open(self, _jetstream):
        await self._reply("open")
        return self

    async def watchall(self):
        await self._reply("watch")
        return SilentWatcher()

    async def _reply(self, call):
        if call == self._swallows:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                return


@pytest.mark.parametrize("swallows", ["open", "watch", ""])
async def test_a_cancelled_watch_ends(swallows, monkeypatch):
    monkeypatch.setattr(bucket_watch, "RECONNECT_CHECK_S", 0.01)
    nc = SimpleNamespace(stats={"reconnects": 0}, jetstream=lambda: None)

    async def follow():
        async for _ in bucket_watch.follow(nc, Bucket(swallows).open):
            pass

    following = asyncio.create_task(follow())
    await asyncio.sleep(0.05)
    following.cancel()
    done, _ = await asyncio.wait([following], timeout=2)

    assert done == {following}, "it went on"
    assert following.cancelled()
