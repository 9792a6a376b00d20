"""The books, checked from outside: what was sent, what is stored, what it costs, what the ledger
says.

The expected cost is computed here with fractions, not with billing's own arithmetic.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import asyncpg

from millrace.v1 import usage_pb2
from tests.services.billing.world import World, identity

PerMillion = tuple[str, str, str]
"""Price of uncached input, cached input and output, in USD per million tokens."""


def cost(event: usage_pb2.UsageEvent, price: PerMillion) -> Fraction:
    """What an event costs, exactly."""
    uncached, cached, output = (Fraction(text) for text in price)
    tokens = (event.prompt_tokens - event.cached_tokens) * uncached
    tokens += event.cached_tokens * cached + event.completion_tokens * output
    return tokens / 1_000_000


async def check_books(
    world: World,
    sent: Sequence[usage_pb2.UsageEvent],
    price_of: Mapping[str, PerMillion],
) -> None:
    """Sum of events = rated = ledger, to the last digit. `price_of` goes by request id."""
    async with world.db() as db:
        await _check_events(db, sent)
        await _check_rated(db, sent, price_of)
        await _check_ledger(db, sent, price_of)


async def _check_events(db: asyncpg.Connection, sent: Sequence[usage_pb2.UsageEvent]) -> None:
    rows = await db.fetch(
        "SELECT request_id, seq, prompt_tokens, cached_tokens, completion_tokens FROM usage_event"
    )
    stored = sorted(tuple(row) for row in rows)
    expected = sorted(
        (*identity(event), event.prompt_tokens, event.cached_tokens, event.completion_tokens)
        for event in sent
    )
    assert stored == expected, f"{len(stored)} events stored, {len(expected)} sent"


async def _check_rated(
    db: asyncpg.Connection,
    sent: Sequence[usage_pb2.UsageEvent],
    price_of: Mapping[str, PerMillion],
) -> None:
    rows = await db.fetch(
        "SELECT request_id, seq, sum(quantity) AS quantity, sum(amount) AS amount"
        " FROM rated_line GROUP BY request_id, seq"
    )
    rated = {(row["request_id"], row["seq"]): row for row in rows}
    assert set(rated) == {identity(event) for event in sent}
    for event in sent:
        row = rated[identity(event)]
        assert row["quantity"] == event.prompt_tokens + event.completion_tokens
        expected = cost(event, price_of[event.request_id])
        assert Fraction(row["amount"]) == expected, (
            f"{event.request_id} costs {expected}, but {row['amount']} was booked"
        )


async def _check_ledger(
    db: asyncpg.Connection,
    sent: Sequence[usage_pb2.UsageEvent],
    price_of: Mapping[str, PerMillion],
) -> None:
    rows = await db.fetch("SELECT account, sum(amount) AS balance FROM posting GROUP BY account")
    balances = {row["account"]: Fraction(row["balance"]) for row in rows}
    owed: dict[str, Fraction] = {}
    for event in sent:
        account = f"unbilled:{event.team_id}"
        owed[account] = owed.get(account, Fraction(0)) + cost(event, price_of[event.request_id])
    assert balances == {**owed, "revenue:tokens": -sum(owed.values())}
    assert sum(balances.values()) == 0, "the trial balance is not zero"
    per_journal = await db.fetch(
        "SELECT journal_id FROM journal j WHERE"
        " (SELECT coalesce(sum(amount), 0) FROM rated_line l WHERE l.journal_id = j.journal_id) <>"
        " (SELECT coalesce(sum(amount), 0) FROM posting p"
        "  WHERE p.journal_id = j.journal_id AND amount > 0)"
    )
    assert not per_journal, "a journal's debit differs from the sum of its rated lines"
