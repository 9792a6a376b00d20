"""Directory changes as they commit: one LISTEN connection that also reads what is newer.

Notifications only say "look"; the rows themselves are read by revision in one consistent snapshot,
so a notification that is lost, doubled or late does no harm.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from billing.directory import ApiKey, DirectoryChange, Price, Team
from billing.store import directory as directory_store
from billing.store.database import CONNECT_TIMEOUT_S, STATEMENT_TIMEOUT_S

CONNECTION_LOST = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)
"""What reading may raise when Postgres goes away, or is not there yet."""

KEY_COLUMNS = directory_store.KEY_COLUMNS
TEAM_COLUMNS = directory_store.TEAM_COLUMNS
PRICE_COLUMNS = directory_store.PRICE_COLUMNS


class ChangeReader:
    """Reads changes above a revision and waits for the next commit."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._is_notified = asyncio.Event()

    async def read_since(self, revision: int) -> DirectoryChange:
        """All rows above this revision; the revision of the result may be lower after a restore."""
        async with self._connection.transaction(isolation="repeatable_read", readonly=True):
            newest = await self._connection.fetchval("SELECT revision FROM directory_revision")
            if newest == revision:
                return DirectoryChange(revision)
            teams = await self._newer("team", TEAM_COLUMNS, revision)
            keys = await self._newer("api_key", KEY_COLUMNS, revision)
            prices = await self._newer("price", PRICE_COLUMNS, revision)
        return DirectoryChange(
            newest,
            [Team(**row) for row in teams],
            [ApiKey(**row) for row in keys],
            [Price(**row) for row in prices],
        )

    async def wait(self, timeout_s: float) -> None:
        """Returns at the next notification, at a lost connection, or after the timeout."""
        try:
            # Not wait_for: Python 3.11's loses a cancellation that comes together with the result.
            async with asyncio.timeout(timeout_s):
                await self._is_notified.wait()
        except TimeoutError:
            return
        self._is_notified.clear()

    def notify(self, *_: object) -> None:
        """Wakes `wait`; called by the connection."""
        self._is_notified.set()

    async def _newer(self, table: str, columns: str, revision: int) -> list[asyncpg.Record]:
        rows: list[asyncpg.Record] = await self._connection.fetch(
            f"SELECT {columns} FROM {table} WHERE revision > $1 ORDER BY revision", revision
        )
        return rows


@asynccontextmanager
async def open_reader(dsn: str) -> AsyncIterator[ChangeReader]:
    """A reader on its own connection, listening from before its first read."""
    connection = await asyncpg.connect(
        dsn, timeout=CONNECT_TIMEOUT_S, command_timeout=STATEMENT_TIMEOUT_S
    )
    try:
        reader = ChangeReader(connection)
        connection.add_termination_listener(reader.notify)
        await connection.add_listener(directory_store.CHANNEL, reader.notify)
        yield reader
    finally:
        connection.terminate()
