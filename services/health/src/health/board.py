"""The messages that watchers get: the newest only, with a version that never goes back.

Nothing is queued for a slow watcher: when it can take a message again, it gets the newest one.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from millrace.v1 import fleet_pb2
from wire import grpc_edge

Message = TypeVar("Message", fleet_pb2.RouteTable, fleet_pb2.ServiceList)


class Board(Generic[Message]):
    """Holds the newest message of one kind."""

    def __init__(self) -> None:
        self._newest: Message | None = None
        self._changed = asyncio.Event()
        # Milliseconds since 1970: a restarted health starts above each version it gave before.
        self._version = int(time.time() * 1000)

    @property
    def newest(self) -> Message | None:
        """What a new watcher gets; None before the first post."""
        return self._newest

    def post(self, message: Message) -> bool:
        """Versions `message` and wakes the watchers; False when nothing has changed."""
        message.version = self._version
        if message == self._newest:
            return False
        self._version += 1
        message.version = self._version
        self._newest = message
        self._changed.set()
        self._changed = asyncio.Event()
        return True

    async def watch(self) -> AsyncIterator[Message]:
        """The newest message at once, each change, and the newest again as a sign of life."""
        while True:
            changed = self._changed
            if self._newest is not None:
                yield self._newest
            try:
                async with asyncio.timeout(grpc_edge.SIGN_OF_LIFE_S):
                    await changed.wait()
            except TimeoutError:
                continue
