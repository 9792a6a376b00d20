"""The connection to Postgres: opened, migrated to the newest schema, waited for.

Several billing processes may start at once on one database: an advisory lock lets one of them
migrate while the others wait, and a second run finds nothing left to do.
"""

import asyncio
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import observe
from wire import backoff

log = observe.get_logger(__name__)

CONNECT_TIMEOUT_S = 3.0
STATEMENT_TIMEOUT_S = 15.0
"""Longer than any query here takes; a peer that vanished without a word ends this way."""
POOL_SIZE = 5
MIGRATE_LOCK = 0x6D696C6C01
"""Key of the advisory lock; any number that no other user of this database takes."""
MIGRATIONS = Path(__file__).parent.parent / "migrations"

AWAY_SQLSTATES = ("08", "3D", "53", "57")
"""Classes: connection, no such database, out of resources, operator intervention (restart)."""
CONTENT_SQLSTATES = ("22", "23")
"""Classes: a value that can't be stored, a constraint that refuses it."""


def open_engine(url: str) -> AsyncEngine:
    """A small pool; connections are checked before use, so a restart costs one reconnect."""
    return create_async_engine(
        url,
        pool_size=POOL_SIZE,
        max_overflow=POOL_SIZE,
        pool_timeout=CONNECT_TIMEOUT_S,
        pool_pre_ping=True,
        connect_args={"timeout": CONNECT_TIMEOUT_S, "command_timeout": STATEMENT_TIMEOUT_S},
    )


def plain_dsn(url: str) -> str:
    """The same address for asyncpg itself, which the LISTEN connection uses."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


async def migrate_when_there(engine: AsyncEngine) -> None:
    """Brings the schema up to date, waiting for Postgres as long as it takes."""
    for delay_s in backoff.delays_s():
        try:
            async with engine.begin() as connection:
                await connection.execute(
                    text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATE_LOCK}
                )
                await connection.run_sync(_upgrade)
        except (DBAPIError, OSError, TimeoutError) as error:
            if not is_away(error):
                raise
            log.warning("postgres_unreachable", error=brief(error), retry_in_s=round(delay_s, 2))
            await asyncio.sleep(delay_s)
        else:
            return


def is_away(error: BaseException) -> bool:
    """True when Postgres can't be reached or is not ready; the same statement may succeed later."""
    if not isinstance(error, DBAPIError):
        return isinstance(error, OSError | TimeoutError)
    # Without a state it is the driver's own complaint about a connection that closed.
    return error.connection_invalidated or _sqlstate(error)[:2] in ("", *AWAY_SQLSTATES)


def is_about_content(error: DBAPIError) -> bool:
    """True when Postgres refuses what was sent, and would again."""
    return _sqlstate(error)[:2] in CONTENT_SQLSTATES


def brief(error: BaseException) -> str:
    """The driver's words alone: SQLAlchemy's message repeats the statement and its values."""
    return repr(error.orig if isinstance(error, DBAPIError) else error)


def _upgrade(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _sqlstate(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", None) or "")
