"""What the database itself refuses, whoever asks: changed books, lopsided journals, late prices."""

import asyncio
from datetime import datetime

import asyncpg
import pytest

from billing.store.directory import PRICE_LOCK
from tests.fixtures.wait import until
from tests.services.billing.world import World, usage_event

BOOKS = (
    "price",
    "usage_event",
    "rated_line",
    "journal",
    "posting",
    "event_conflict",
    "dead_letter",
)


async def _fill(world: World) -> None:
    billing = await world.start()
    await billing.create_key(await billing.create_team())
    await billing.set_price("smollm2", "0.15", "0.05", "0.6")
    event = usage_event("team-a")
    conflict = usage_event("team-a", request_id=event.request_id, completion=8)
    await world.publish([event, conflict])
    await world.publish_bytes(b"\xff")
    await world.until_settled()


async def test_the_books_are_append_only(world: World) -> None:
    await _fill(world)

    async with world.db() as db:
        for table in BOOKS:
            assert await db.fetchval(f"SELECT count(*) FROM {table}") > 0, table
            column = await db.fetchval(
                "SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attnum = 2",
                table,
            )
            for statement in (
                f"UPDATE {table} SET {column} = {column}",
                f"DELETE FROM {table}",
                f"TRUNCATE {table} CASCADE",
            ):
                with pytest.raises(asyncpg.RaiseError, match="is append-only"):
                    await db.execute(statement)


async def test_teams_and_keys_are_never_deleted(world: World) -> None:
    await _fill(world)

    async with world.db() as db:
        for table in ("api_key", "team"):
            with pytest.raises(asyncpg.RaiseError, match="append-only: DELETE refused"):
                await db.execute(f"DELETE FROM {table}")


async def test_an_unbalanced_journal_cannot_be_committed(world: World) -> None:
    await _fill(world)
    journal = "INSERT INTO journal (idem_key, kind, team_id, period) VALUES ($1, 'x', 'a', now())"
    posting = "INSERT INTO posting VALUES ($1, $2, $3, 'USD', $4)"

    async with world.db() as db:
        for amounts, is_refused in (((1, -2), True), ((1,), True), ((2, -2), False)):
            transaction = db.transaction()
            await transaction.start()
            made = await db.fetchval(journal + " RETURNING journal_id", str(amounts))
            for line, amount in enumerate(amounts):
                await db.execute(posting, made, line, f"account-{line}", amount)
            if is_refused:
                with pytest.raises(asyncpg.RaiseError, match="does not balance"):
                    await transaction.commit()
            else:
                await transaction.commit()
        with pytest.raises(asyncpg.CheckViolationError):
            await db.execute(posting, made, 9, "account", 0)


async def test_a_price_cannot_be_slipped_in_before_another(world: World) -> None:
    await _fill(world)

    async with world.db() as db:
        with pytest.raises(asyncpg.RaiseError, match="begins later exists already"):
            await db.execute(
                "INSERT INTO price (price_id, model, currency, input_usd_per_mtok,"
                " cached_input_usd_per_mtok, output_usd_per_mtok, effective_from)"
                " VALUES ('p', 'smollm2', 'USD', 0, 0, 0, now() - interval '1 day')"
            )


async def test_many_processes_may_start_on_an_empty_database(world: World) -> None:
    processes = await asyncio.gather(*(world.start() for _ in range(3)))

    assert await world.value("SELECT count(*) FROM alembic_version") == 1
    assert await world.value("SELECT revision FROM directory_revision") == 0
    migrations = [process.process.log().count("Running upgrade") for process in processes]
    assert sum(migrations) == 1


async def test_a_price_begins_only_after_the_batches_that_may_still_use_the_old_one(
    world: World,
) -> None:
    billing = await world.start()
    async with world.db() as db:
        transaction = db.transaction()
        await transaction.start()
        await db.execute("SELECT pg_advisory_xact_lock_shared($1)", PRICE_LOCK)

        setting = asyncio.create_task(billing.set_price("smollm2", "1", "1", "1"))
        await until(lambda: _waits_for_lock(world), what="the new price waits for the batch")
        released_at = await db.fetchval("SELECT clock_timestamp()")
        await transaction.commit()
        price = await setting

    assert datetime.fromisoformat(price["effective_from"]) > released_at


async def _waits_for_lock(world: World) -> bool:
    query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    return bool(await world.value(query))
