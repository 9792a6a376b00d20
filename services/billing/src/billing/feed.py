"""This process's copy of the directory, kept current, and the followers that wait on it.

Invariant: a committed change reaches every follower of every billing process as soon as Postgres
notifies (well under a second), or at the latest at the next look (`LOOK_EVERY_S`). While Postgres
is away the last copy stays and followers keep getting signs of life: fail static.
"""

import asyncio

import observe
from billing import metrics
from billing.directory import Directory
from billing.store.changes import CONNECTION_LOST, ChangeReader, open_reader
from wire import backoff

log = observe.get_logger(__name__)

LOOK_EVERY_S = 1.0
"""How long a lost notification can delay a change; one query of one row each time."""


class DirectoryFeed:
    """The newest directory, and a way to wait for the next change."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._changed = asyncio.Event()
        self.directory = Directory()
        self.is_loaded = False
        self.is_closed = False

    async def run(self) -> None:
        """Follows the database for ever, over any number of its restarts."""
        delays = backoff.delays_s()
        while True:
            try:
                async with open_reader(self._dsn) as reader:
                    await self._read(reader)
                    delays = backoff.delays_s()
                    while True:
                        await reader.wait(LOOK_EVERY_S)
                        await self._read(reader)
            except CONNECTION_LOST as error:
                log.warning("directory_feed_broken", error=repr(error))
            await asyncio.sleep(next(delays))

    async def wait_for_change(self, timeout_s: float) -> None:
        """Returns after the next change (or close), at the latest after the timeout."""
        try:
            # Not wait_for: Python 3.11's loses a cancellation that comes together with the result.
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def wait_until_loaded(self) -> None:
        """Returns once the database has been read for the first time."""
        while not self.is_loaded:
            await self.wait_for_change(LOOK_EVERY_S)

    def close(self) -> None:
        """Lets the followers end their streams."""
        self.is_closed = True
        self._wake()

    async def _read(self, reader: ChangeReader) -> None:
        known = self.directory.revision if self.is_loaded else -1
        change = await reader.read_since(known)
        if change.revision < known:
            log.error("directory_went_back", known=known, found=change.revision)
            # An older database was restored: a new object makes the followers send a snapshot.
            restored = Directory()
            restored.apply(await reader.read_since(-1))
            self.directory = restored
        elif change.revision > known:
            self.directory.apply(change)
        else:
            return
        self.is_loaded = True
        metrics.DIRECTORY_REVISION.set(self.directory.revision)
        self._wake()

    def _wake(self) -> None:
        # A fresh event for those who wait next: nobody has to clear it, so nobody can miss it.
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
