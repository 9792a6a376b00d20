"""Rated lines as balanced journals: what a team owes on one side, what was earned on the other.

Invariant: every journal sums to zero in its currency, and its debit equals the sum of its rated
lines. One journal per team and month of a batch keeps the ledger small; the lines keep the way back
to each event.
"""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from billing.rating import EXACT, RatedLine
from wire.months import month_of

REVENUE_ACCOUNT = "revenue:tokens"


@dataclass(frozen=True)
class Posting:
    """An amount on an account: debit is positive, credit negative, zero does not exist."""

    account: str
    currency: str
    amount: Decimal


@dataclass(frozen=True)
class Journal:
    """Lines of one team and month with the postings that book them."""

    idem_key: str
    team_id: str
    period: date
    lines: list[RatedLine]
    postings: list[Posting]


def unbilled_account(team_id: str) -> str:
    """What a team owes and no invoice has asked for yet."""
    return f"unbilled:{team_id}"


def period_of(moment: datetime) -> date:
    """The first day of the month a moment belongs to; by UTC."""
    return month_of(moment)[0].date()


def journals(lines: Sequence[RatedLine]) -> list[Journal]:
    """Groups lines by team and month, in a fixed order."""
    groups: dict[tuple[str, date], list[RatedLine]] = defaultdict(list)
    for line in lines:
        groups[line.event.team_id, period_of(line.event.occurred_at)].append(line)
    return [
        Journal(_idem_key(group), team_id, period, group, _postings(team_id, group))
        for (team_id, period), group in sorted(groups.items())
    ]


def _postings(team_id: str, lines: Sequence[RatedLine]) -> list[Posting]:
    totals: dict[str, Decimal] = defaultdict(Decimal)
    for line in lines:
        totals[line.currency] = EXACT.add(totals[line.currency], line.amount)
    postings: list[Posting] = []
    for currency, total in sorted(totals.items()):
        if total:
            postings.append(Posting(unbilled_account(team_id), currency, total))
            # copy_negate, as the minus sign would round to the default context.
            postings.append(Posting(REVENUE_ACCOUNT, currency, total.copy_negate()))
    return postings


def _idem_key(lines: Sequence[RatedLine]) -> str:
    names = sorted({f"{line.event.request_id}:{line.event.seq}" for line in lines})
    return "usage:" + hashlib.sha256("|".join(names).encode()).hexdigest()
