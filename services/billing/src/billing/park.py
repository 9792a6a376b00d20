"""Books parked events once their model has a price: at each change of the directory, and now and
then."""

import asyncio

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

import observe
from billing import metrics
from billing.feed import DirectoryFeed
from billing.store import ledger as ledger_store
from billing.store.database import brief

log = observe.get_logger(__name__)

LOOK_EVERY_S = 5.0
"""Also how old the gauge of parked events can be."""


async def book_parked(engine: AsyncEngine, feed: DirectoryFeed) -> None:
    """Looks for ever; several billing processes share the work, each event is taken by one."""
    while True:
        try:
            await _book_all_priced(engine)
        except (DBAPIError, OSError, TimeoutError) as error:
            log.warning("parked_events_wait_for_postgres", error=brief(error))
            # Not sooner, though the feed may change meanwhile: Postgres is asked by others already.
            await asyncio.sleep(LOOK_EVERY_S)
            continue
        await feed.wait_for_change(LOOK_EVERY_S)


async def _book_all_priced(engine: AsyncEngine) -> None:
    while True:
        async with engine.begin() as db:
            booked = await ledger_store.book_priced(db)
        if not booked:
            break
        metrics.EVENTS_POSTED.inc(booked)
        log.info("parked_events_booked", events=booked)
    async with engine.connect() as db:
        metrics.EVENTS_UNPRICED.set(await ledger_store.count_unpriced(db))
