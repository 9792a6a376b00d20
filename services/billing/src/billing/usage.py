"""What a usage question asks for and what the ledger answers: the same types for gRPC and the
admin API."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from billing.errors import InvalidPeriod


@dataclass(frozen=True)
class UsageQuestion:
    """A team's booked events by time of admission: start inclusive, end exclusive, None open."""

    team_id: str
    start: datetime | None = None
    end: datetime | None = None
    request_id: UUID | None = None

    def __post_init__(self) -> None:
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise InvalidPeriod(self.start.isoformat(), self.end.isoformat())


@dataclass(frozen=True)
class UsageLine:
    """What one key of the team used of one model."""

    model: str
    key_id: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_usd: Decimal


@dataclass(frozen=True)
class UsageSummary:
    """Lines by model and key; events that wait for a price are in no line but counted apart."""

    lines: list[UsageLine]
    unpriced_events: int
    complete_through: datetime | None
    """Admission time of the newest booked event of any team; None while there is none."""


def money_text(amount: Decimal) -> str:
    """Exact decimal text without an exponent or trailing zeros."""
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
