"""The admin API: teams, keys, prices and usage over HTTP, for operators and the command line."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, FastAPI, Path, Query
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from billing.edge import bodies
from billing.edge.bodies import MAX_NAME_CHARS
from billing.edge.guard import AdminKeyGuard
from billing.edge.http_errors import install_error_bodies
from billing.errors import InvalidQuestion
from billing.store import directory as directory_store
from billing.store import usage as usage_store
from billing.usage import UsageQuestion
from wire.months import month_of


def admin_app(engine: AsyncEngine, admin_key_sha256: bytes) -> FastAPI:
    """The application; everything but /healthz asks for the admin key."""
    app = FastAPI(title="Millrace billing", openapi_url=None, docs_url=None, redoc_url=None)
    app.add_middleware(AdminKeyGuard, admin_key_sha256=admin_key_sha256)
    install_error_bodies(app)

    async def transaction() -> AsyncIterator[AsyncConnection]:
        async with engine.begin() as db:
            yield db

    # "function": committed before the answer goes out, so a caller that has it can rely on it.
    Transaction = Annotated[AsyncConnection, Depends(transaction, scope="function")]  # noqa: N806

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/admin/v1/teams", status_code=201)
    async def create_team(new: bodies.NewTeam, db: Transaction) -> dict[str, object]:
        return bodies.team_body(await directory_store.create_team(db, new.name))

    @app.get("/admin/v1/teams")
    async def list_teams(db: Transaction) -> dict[str, object]:
        teams = await directory_store.list_teams(db)
        return {"data": [bodies.team_body(team) for team in teams]}

    @app.post("/admin/v1/teams/{team_id}/keys", status_code=201)
    async def create_key(team_id: str, new: bodies.NewKey, db: Transaction) -> dict[str, object]:
        made, key = await directory_store.create_key(db, team_id, new.name)
        return {**bodies.key_body(key), "key": made.text}

    @app.get("/admin/v1/teams/{team_id}/keys")
    async def list_keys(team_id: str, db: Transaction) -> dict[str, object]:
        keys = await directory_store.list_keys(db, team_id)
        return {"data": [bodies.key_body(key) for key in keys]}

    @app.delete("/admin/v1/keys/{key_id}")
    async def revoke_key(key_id: str, db: Transaction) -> dict[str, object]:
        return bodies.key_body(await directory_store.revoke_key(db, key_id))

    @app.put("/admin/v1/prices/{model:path}")
    async def set_price(
        model: Annotated[str, Path(max_length=MAX_NAME_CHARS)],
        new: bodies.NewPrice,
        db: Transaction,
    ) -> dict[str, object]:
        return bodies.price_body(await directory_store.set_price(db, model, *new.amounts))

    @app.get("/admin/v1/prices")
    async def list_prices(db: Transaction) -> dict[str, object]:
        prices = await directory_store.list_prices(db)
        return {"data": [bodies.price_body(price) for price in prices]}

    @app.get("/admin/v1/usage")
    async def usage(
        db: Transaction,
        team_id: Annotated[str, Query(min_length=1)],
        start: datetime | None = None,
        end: datetime | None = None,
    ) -> dict[str, object]:
        month_start, month_end = month_of(datetime.now(UTC))
        since, until = _utc(start or month_start), _utc(end or month_end)
        await directory_store.require_team(db, team_id)
        summary = await usage_store.summarize(db, UsageQuestion(team_id, since, until))
        return bodies.usage_body(team_id, since, until, summary)

    return app


def _utc(moment: datetime) -> datetime:
    try:
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except OverflowError as error:
        raise InvalidQuestion(f"{moment.isoformat()} is outside of the calendar.") from error
