"""Billing with one rule broken, and billing that dies at one exact point.

The `kill_*` patches break no rule: they end the process by SIGKILL where the ledger is most at
risk, and leave a mark first, so that a test can assert that the point was reached.
"""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import NoReturn

from nats.aio.msg import Msg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from billing import consume, feed, rating
from billing.directory import ApiKey, Price
from billing.events import Event, Incoming, read_messages
from billing.keys import NewKey
from billing.store import changes, database
from billing.store import directory as directory_store
from billing.store import ledger as ledger_store
from wire import grpc_edge

MARK_VARIABLE = "MUTANT_MARK"
"""Names the file that a `kill_*` patch makes before it kills."""


def ack_before_commit() -> None:
    """Acknowledges first: a crash before the commit then loses the batch."""

    async def settle(engine: AsyncEngine, messages: list[Msg]) -> None:
        await consume.acknowledge(messages)
        await messages[0]._client.flush()
        await consume.book(engine, read_messages([message.data for message in messages]))

    consume.settle = settle


def no_unique_event() -> None:
    """Takes the unique keys away that make a redelivery change nothing."""
    migrate = database.migrate_when_there

    async def migrate_and_drop_keys(engine: AsyncEngine) -> None:
        await migrate(engine)
        async with engine.begin() as db:
            for table, constraint in (
                ("usage_event", "usage_event_pkey"),
                ("rated_line", "rated_line_pkey"),
                ("journal", "journal_idem_key_key"),
            ):
                drop = f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {constraint}"
                await db.execute(text(drop))

    database.migrate_when_there = migrate_and_drop_keys


def price_of_today() -> None:
    """Rates by the newest price instead of the one that held when the request was admitted."""

    def price_at(prices: Sequence[Price], moment: datetime) -> Price | None:
        return max(prices, key=lambda price: price.effective_from, default=None)

    rating.price_at = price_at


def float_money() -> None:
    """Multiplies in binary floating point."""

    def amount(quantity: int, usd_per_mtok: Decimal) -> Decimal:
        return Decimal(round(quantity * float(usd_per_mtok) / 1e6, 15)).quantize(Decimal("1e-15"))

    rating._amount = amount


def conflict_dropped() -> None:
    """Ignores a known event id that comes with another payload."""
    ledger_store.KEEP_CONFLICTS = text(
        "SELECT NULL AS request_id, NULL AS seq FROM (SELECT CAST(:rows AS jsonb)) r WHERE false"
    )


def unpriced_dropped() -> None:
    """Drops events without a price, as an inner join with the prices would."""
    rate = rating.rate

    def rate_priced(events: Sequence[Event], prices: Mapping[str, Sequence[Price]]) -> rating.Rated:
        return rating.Rated(rate(events, prices).lines, [])

    rating.rate = rate_priced


def dead_letter_dropped() -> None:
    """Throws away what cannot be read."""

    async def keep_nothing(db: AsyncConnection, incoming: Incoming) -> list[str]:
        return []

    ledger_store._keep_dead_letters = keep_nothing


def key_stored_in_clear() -> None:
    """Leaves the key itself in the database."""
    create = directory_store.create_key

    async def create_key(db: AsyncConnection, team_id: str, name: str) -> tuple[NewKey, ApiKey]:
        new, key = await create(db, team_id, name)
        await db.execute(
            text("UPDATE api_key SET name = :key WHERE key_id = :id"),
            {"key": new.text, "id": new.key_id},
        )
        return new, key

    directory_store.create_key = create_key


def deaf_to_notifications() -> None:
    """Finds directory changes only by looking now and then."""
    changes.ChangeReader.notify = lambda *_: None  # type: ignore[method-assign]  # the mutation
    feed.LOOK_EVERY_S = 2.5


def no_sign_of_life() -> None:
    """Stays silent while nothing changes."""
    grpc_edge.SIGN_OF_LIFE_S = 60.0


def kill_after_fetch() -> None:
    """Dies with messages in hand and nothing stored."""

    async def settle(engine: AsyncEngine, messages: list[Msg]) -> None:
        _die()

    consume.settle = settle


def kill_before_commit() -> None:
    """Dies with everything written in an open transaction."""
    book = ledger_store.book

    async def book_and_die(db: AsyncConnection, incoming: Incoming) -> NoReturn:
        await book(db, incoming)
        _die()

    ledger_store.book = book_and_die


def kill_after_commit() -> None:
    """Dies with the batch committed and no message acknowledged."""

    async def acknowledge(messages: list[Msg]) -> None:
        _die()

    consume.acknowledge = acknowledge


def kill_mid_ack() -> None:
    """Dies with half of the messages acknowledged; waits for a batch of several messages."""
    acknowledge = consume.acknowledge
    consume.GATHER_S = 0.5

    async def acknowledge_half(messages: list[Msg]) -> None:
        if len(messages) < 2:
            await acknowledge(messages)
            return
        await acknowledge(messages[: len(messages) // 2])
        await messages[0]._client.flush()
        _die()

    consume.acknowledge = acknowledge_half


def kill_while_booking_parked() -> None:
    """Dies with parked events taken and booked in an open transaction."""
    book_priced = ledger_store.book_priced

    async def book_priced_and_die(db: AsyncConnection) -> int:
        booked = await book_priced(db)
        if booked:
            _die()
        return booked

    ledger_store.book_priced = book_priced_and_die


def _die() -> NoReturn:
    Path(os.environ[MARK_VARIABLE]).touch()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL does not return")


MUTANTS: dict[str, Callable[[], None]] = {
    patch.__name__: patch
    for patch in (
        ack_before_commit,
        no_unique_event,
        price_of_today,
        float_money,
        conflict_dropped,
        unpriced_dropped,
        dead_letter_dropped,
        key_stored_in_clear,
        deaf_to_notifications,
        no_sign_of_life,
        kill_after_fetch,
        kill_before_commit,
        kill_after_commit,
        kill_mid_ack,
        kill_while_booking_parked,
    )
}
