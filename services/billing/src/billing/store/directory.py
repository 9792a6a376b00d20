"""Reads and writes teams, keys and prices; revisions and notifications are made by triggers.

Invariant: a price begins at the moment it is set, after every batch that could have used the older
one has committed (`PRICE_LOCK`), so no event is rated by a price that had ended when it was
admitted.
"""

import secrets
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from billing.directory import ApiKey, Price, Team
from billing.errors import KeyNotFound, TeamNameTaken, TeamNotFound
from billing.keys import NewKey, mint

CHANNEL = "millrace_directory"
"""LISTEN here to be woken at each commit that changes the directory."""
PRICE_LOCK = 0x6D696C6C02
"""Advisory lock: batches hold it shared while they rate, a new price takes it alone."""
CURRENCY = "USD"

TEAM_COLUMNS = "team_id, name, is_suspended, created_at, revision"
KEY_COLUMNS = "key_id, sha256, team_id, name, created_at, revoked_at, revision"
PRICE_COLUMNS = (
    "price_id, model, currency, input_usd_per_mtok, cached_input_usd_per_mtok,"
    " output_usd_per_mtok, effective_from, revision"
)


async def create_team(db: AsyncConnection, name: str) -> Team:
    """A new team. Raises TeamNameTaken."""
    try:
        row = await db.execute(
            text(f"INSERT INTO team (team_id, name) VALUES (:id, :name) RETURNING {TEAM_COLUMNS}"),
            {"id": f"team-{secrets.token_hex(6)}", "name": name},
        )
    except IntegrityError as error:
        raise TeamNameTaken(name) from error
    return _team(row.one())


async def list_teams(db: AsyncConnection) -> list[Team]:
    """All teams, oldest first."""
    rows = await db.execute(text(f"SELECT {TEAM_COLUMNS} FROM team ORDER BY created_at, team_id"))
    return [_team(row) for row in rows]


async def require_team(db: AsyncConnection, team_id: str) -> None:
    """Raises TeamNotFound."""
    found = await db.execute(text("SELECT 1 FROM team WHERE team_id = :id"), {"id": team_id})
    if found.first() is None:
        raise TeamNotFound(team_id)


async def create_key(db: AsyncConnection, team_id: str, name: str) -> tuple[NewKey, ApiKey]:
    """A new key of a team; the first part of the result is the only place where the key exists."""
    await require_team(db, team_id)
    while True:
        new = mint()
        row = await db.execute(
            text(
                "INSERT INTO api_key (key_id, sha256, team_id, name)"
                " VALUES (:key_id, :sha256, :team_id, :name)"
                f" ON CONFLICT (key_id) DO NOTHING RETURNING {KEY_COLUMNS}"
            ),
            {"key_id": new.key_id, "sha256": new.sha256, "team_id": team_id, "name": name},
        )
        stored = row.first()
        if stored is not None:  # else the 32-bit id was taken: draw again
            return new, _key(stored)


async def list_keys(db: AsyncConnection, team_id: str) -> list[ApiKey]:
    """All keys of a team, oldest first. Raises TeamNotFound."""
    await require_team(db, team_id)
    rows = await db.execute(
        text(f"SELECT {KEY_COLUMNS} FROM api_key WHERE team_id = :id ORDER BY created_at, key_id"),
        {"id": team_id},
    )
    return [_key(row) for row in rows]


async def revoke_key(db: AsyncConnection, key_id: str) -> ApiKey:
    """Ends a key for ever; revoking it again changes nothing. Raises KeyNotFound."""
    parameters = {"id": key_id}
    await db.execute(
        text("UPDATE api_key SET revoked_at = now() WHERE key_id = :id AND revoked_at IS NULL"),
        parameters,
    )
    rows = await db.execute(
        text(f"SELECT {KEY_COLUMNS} FROM api_key WHERE key_id = :id"), parameters
    )
    row = rows.first()
    if row is None:
        raise KeyNotFound(key_id)
    return _key(row)


async def set_price(
    db: AsyncConnection, model: str, uncached: Decimal, cached: Decimal, output: Decimal
) -> Price:
    """A new price of a model, from now on."""
    await db.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": PRICE_LOCK})
    row = await db.execute(
        text(
            "INSERT INTO price (price_id, model, currency, input_usd_per_mtok,"
            " cached_input_usd_per_mtok, output_usd_per_mtok, effective_from)"
            " VALUES (:price_id, :model, :currency, :uncached, :cached, :output,"
            f" clock_timestamp()) RETURNING {PRICE_COLUMNS}"
        ),
        {
            "price_id": f"price-{secrets.token_hex(6)}",
            "model": model,
            "currency": CURRENCY,
            "uncached": uncached,
            "cached": cached,
            "output": output,
        },
    )
    return _price(row.one())


async def list_prices(db: AsyncConnection) -> list[Price]:
    """Every price there ever was, per model in the order they began."""
    rows = await db.execute(
        text(f"SELECT {PRICE_COLUMNS} FROM price ORDER BY model, effective_from")
    )
    return [_price(row) for row in rows]


async def prices_of(db: AsyncConnection, models: set[str]) -> dict[str, list[Price]]:
    """All prices of these models; holds off new prices until the transaction ends."""
    await db.execute(text("SELECT pg_advisory_xact_lock_shared(:key)"), {"key": PRICE_LOCK})
    rows = await db.execute(
        text(f"SELECT {PRICE_COLUMNS} FROM price WHERE model = ANY(:models)"),
        {"models": sorted(models)},
    )
    found: dict[str, list[Price]] = {model: [] for model in models}
    for row in rows:
        found[row.model].append(_price(row))
    return found


def _team(row: Row[Any]) -> Team:
    return Team(row.team_id, row.name, row.is_suspended, row.created_at, row.revision)


def _key(row: Row[Any]) -> ApiKey:
    revoked_at: datetime | None = row.revoked_at
    return ApiKey(
        row.key_id, row.sha256, row.team_id, row.name, row.created_at, revoked_at, row.revision
    )


def _price(row: Row[Any]) -> Price:
    return Price(
        price_id=row.price_id,
        model=row.model,
        currency=row.currency,
        input_usd_per_mtok=row.input_usd_per_mtok,
        cached_input_usd_per_mtok=row.cached_input_usd_per_mtok,
        output_usd_per_mtok=row.output_usd_per_mtok,
        effective_from=row.effective_from,
        revision=row.revision,
    )
