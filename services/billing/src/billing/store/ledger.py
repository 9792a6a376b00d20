"""Books events: the event, its rated lines and its journal in the caller's one transaction.

Invariant: (request_id, seq) is stored once in `usage_event` and only an event that this transaction
stored is rated, so a redelivery, a duplicate or a competing billing process changes nothing.
Rows are inserted in key order: competing processes wait for each other and never deadlock.
"""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from billing import ledger, rating
from billing.events import Event, Incoming
from billing.store import directory as directory_store

UNPRICED_PER_TRANSACTION = 500

STORE_EVENTS = text("""
    INSERT INTO usage_event (request_id, seq, team_id, key_id, model, cluster, pool, endpoint,
        occurred_at, outcome, prompt_tokens, cached_tokens, completion_tokens, is_exact, is_stream,
        payload_sha256)
    SELECT request_id, seq, team_id, key_id, model, cluster, pool, endpoint, occurred_at, outcome,
        prompt_tokens, cached_tokens, completion_tokens, is_exact, is_stream,
        decode(payload_sha256, 'hex')
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS e(request_id uuid, seq bigint, team_id text,
        key_id text, model text, cluster text, pool text, endpoint text, occurred_at timestamptz,
        outcome text, prompt_tokens bigint, cached_tokens bigint, completion_tokens bigint,
        is_exact boolean, is_stream boolean, payload_sha256 text, position int)
    ORDER BY request_id, seq, position
    ON CONFLICT DO NOTHING
    RETURNING request_id, seq, payload_sha256""")

KEEP_CONFLICTS = text("""
    INSERT INTO event_conflict (request_id, seq, payload_sha256, payload)
    SELECT DISTINCT e.request_id, e.seq, decode(e.payload_sha256, 'hex'), decode(e.payload, 'hex')
    FROM jsonb_to_recordset(CAST(:rows AS jsonb))
        AS e(request_id uuid, seq bigint, payload_sha256 text, payload text)
    JOIN usage_event USING (request_id, seq)
    WHERE usage_event.payload_sha256 <> decode(e.payload_sha256, 'hex')
    ON CONFLICT DO NOTHING
    RETURNING request_id, seq""")

KEEP_DEAD_LETTERS = text("""
    INSERT INTO dead_letter (payload_sha256, payload, reason)
    SELECT DISTINCT ON (payload_sha256)
        decode(payload_sha256, 'hex'), decode(payload, 'hex'), reason
    FROM jsonb_to_recordset(CAST(:rows AS jsonb))
        AS d(payload_sha256 text, payload text, reason text)
    ON CONFLICT DO NOTHING
    RETURNING reason""")

PARK = text("""
    INSERT INTO unpriced_event (request_id, seq, model)
    SELECT request_id, seq, model
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS e(request_id uuid, seq bigint, model text)""")

TAKE_PRICED = text("""
    DELETE FROM unpriced_event USING usage_event e
    WHERE unpriced_event.request_id = e.request_id AND unpriced_event.seq = e.seq
      AND (e.request_id, e.seq) IN (
        SELECT request_id, seq FROM unpriced_event u
        WHERE EXISTS (SELECT FROM price WHERE price.model = u.model)
        ORDER BY request_id, seq LIMIT :most FOR UPDATE SKIP LOCKED)
    RETURNING e.*""")

OPEN_JOURNALS = text("""
    INSERT INTO journal (idem_key, kind, team_id, period)
    SELECT idem_key, 'usage', team_id, period
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS j(idem_key text, team_id text, period date)
    RETURNING journal_id, idem_key""")

STORE_LINES = text("""
    INSERT INTO rated_line (request_id, seq, meter, price_id, currency, quantity, amount,
        journal_id)
    SELECT request_id, seq, meter, price_id, currency, quantity, amount, journal_id
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS l(request_id uuid, seq bigint, meter text,
        price_id text, currency text, quantity bigint, amount numeric, journal_id bigint)""")

STORE_POSTINGS = text("""
    INSERT INTO posting (journal_id, line, account, currency, amount)
    SELECT journal_id, line, account, currency, amount
    FROM jsonb_to_recordset(CAST(:rows AS jsonb))
        AS p(journal_id bigint, line int, account text, currency text, amount numeric)""")


@dataclass(frozen=True)
class Booked:
    """What one transaction did."""

    posted: int = 0
    duplicates: int = 0
    parked: int = 0
    conflicts: list[str] = field(default_factory=list)
    dead_letters: list[str] = field(default_factory=list)


async def book(db: AsyncConnection, incoming: Incoming) -> Booked:
    """Stores, rates and journals what is new here, and keeps apart what can't be booked."""
    rows = _to_json([_event_row(event, position) for position, event in enumerate(incoming.events)])
    stored = {
        (row.request_id, row.seq, row.payload_sha256)
        for row in await db.execute(STORE_EVENTS, {"rows": rows})
    }
    conflicts = [
        f"{row.request_id}:{row.seq}" for row in await db.execute(KEEP_CONFLICTS, {"rows": rows})
    ]
    new = {
        (event.request_id, event.seq): event
        for event in incoming.events
        if (event.request_id, event.seq, event.payload_sha256) in stored
    }
    unpriced = await _rate_and_journal(db, list(new.values()))
    if unpriced:
        parked = [
            {"request_id": str(event.request_id), "seq": event.seq, "model": event.model}
            for event in unpriced
        ]
        await db.execute(PARK, {"rows": _to_json(parked)})
    return Booked(
        posted=len(new) - len(unpriced),
        duplicates=len(incoming.events) - len(new),
        parked=len(unpriced),
        conflicts=conflicts,
        dead_letters=await _keep_dead_letters(db, incoming),
    )


async def book_priced(db: AsyncConnection) -> int:
    """Books parked events whose model has a price by now, a bounded number; returns how many."""
    rows = await db.execute(TAKE_PRICED, {"most": UNPRICED_PER_TRANSACTION})
    events = [_event_of(row) for row in rows]
    left = await _rate_and_journal(db, events)
    assert not left, "an event was taken for a price that is not there"
    return len(events)


async def count_unpriced(db: AsyncConnection) -> int:
    """How many events wait for a price."""
    counted = await db.execute(text("SELECT count(*) FROM unpriced_event"))
    return int(counted.scalar_one())


async def _rate_and_journal(db: AsyncConnection, events: Sequence[Event]) -> list[Event]:
    if not events:
        return []
    prices = await directory_store.prices_of(db, {event.model for event in events})
    rated = rating.rate(events, prices)
    if rated.lines:
        await _store_journals(db, ledger.journals(rated.lines))
    return rated.unpriced


async def _store_journals(db: AsyncConnection, journals: Sequence[ledger.Journal]) -> None:
    opened = await db.execute(
        OPEN_JOURNALS,
        {
            "rows": _to_json(
                [
                    {
                        "idem_key": journal.idem_key,
                        "team_id": journal.team_id,
                        "period": journal.period.isoformat(),
                    }
                    for journal in journals
                ]
            )
        },
    )
    ids = {row.idem_key: row.journal_id for row in opened}
    lines = [
        _line_row(line, ids[journal.idem_key]) for journal in journals for line in journal.lines
    ]
    await db.execute(STORE_LINES, {"rows": _to_json(lines)})
    postings = [
        {
            "journal_id": ids[journal.idem_key],
            "line": number,
            "account": posting.account,
            "currency": posting.currency,
            "amount": f"{posting.amount:f}",
        }
        for journal in journals
        for number, posting in enumerate(journal.postings)
    ]
    await db.execute(STORE_POSTINGS, {"rows": _to_json(postings)})


async def _keep_dead_letters(db: AsyncConnection, incoming: Incoming) -> list[str]:
    if not incoming.dead_letters:
        return []
    rows: list[dict[str, object]] = [
        {
            "payload_sha256": letter.payload_sha256.hex(),
            "payload": letter.payload.hex(),
            "reason": letter.reason,
        }
        for letter in incoming.dead_letters
    ]
    kept = await db.execute(KEEP_DEAD_LETTERS, {"rows": _to_json(rows)})
    return [row.reason for row in kept]


def _event_row(event: Event, position: int) -> dict[str, object]:
    return {
        "request_id": str(event.request_id),
        "seq": event.seq,
        "team_id": event.team_id,
        "key_id": event.key_id,
        "model": event.model,
        "cluster": event.cluster,
        "pool": event.pool,
        "endpoint": event.endpoint,
        "occurred_at": event.occurred_at.isoformat(),
        "outcome": event.outcome,
        "prompt_tokens": event.prompt_tokens,
        "cached_tokens": event.cached_tokens,
        "completion_tokens": event.completion_tokens,
        "is_exact": event.is_exact,
        "is_stream": event.is_stream,
        "payload_sha256": event.payload_sha256.hex(),
        "payload": event.payload.hex(),
        "position": position,
    }


def _line_row(line: rating.RatedLine, journal_id: int) -> dict[str, object]:
    return {
        "request_id": str(line.event.request_id),
        "seq": line.event.seq,
        "meter": line.meter,
        "price_id": line.price_id,
        "currency": line.currency,
        "quantity": line.quantity,
        "amount": f"{line.amount:f}",
        "journal_id": journal_id,
    }


def _event_of(row: Row[Any]) -> Event:
    return Event(
        request_id=uuid.UUID(str(row.request_id)),
        seq=row.seq,
        team_id=row.team_id,
        key_id=row.key_id,
        model=row.model,
        cluster=row.cluster,
        pool=row.pool,
        endpoint=row.endpoint,
        occurred_at=row.occurred_at,
        outcome=row.outcome,
        prompt_tokens=row.prompt_tokens,
        cached_tokens=row.cached_tokens,
        completion_tokens=row.completion_tokens,
        is_exact=row.is_exact,
        is_stream=row.is_stream,
        payload_sha256=row.payload_sha256,
        payload=b"",
    )


def _to_json(rows: list[dict[str, object]]) -> str:
    return json.dumps(rows)
