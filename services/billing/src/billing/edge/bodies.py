"""The JSON bodies of the admin API."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from billing.directory import ApiKey, Price, Team
from billing.usage import UsageSummary, money_text

MAX_NAME_CHARS = 200

Name = Annotated[
    str,
    StringConstraints(
        strip_whitespace=True, min_length=1, max_length=MAX_NAME_CHARS, pattern=r"^[^\x00]*$"
    ),
]
# Text, because a JSON number passes through a binary float in most clients and would lose digits.
PriceText = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}(\.[0-9]{1,9})?$")]


class NewTeam(BaseModel):
    """POST /admin/v1/teams."""

    model_config = ConfigDict(extra="forbid")

    name: Name


class NewKey(BaseModel):
    """POST /admin/v1/teams/{team_id}/keys."""

    model_config = ConfigDict(extra="forbid")

    name: Name = "default"


class NewPrice(BaseModel):
    """PUT /admin/v1/prices/{model}: USD per million tokens as decimal text."""

    model_config = ConfigDict(extra="forbid")

    input_usd_per_mtok: PriceText = Field(examples=["0.15"])
    cached_input_usd_per_mtok: PriceText
    output_usd_per_mtok: PriceText

    @property
    def amounts(self) -> tuple[Decimal, Decimal, Decimal]:
        """Uncached input, cached input, output."""
        return (
            Decimal(self.input_usd_per_mtok),
            Decimal(self.cached_input_usd_per_mtok),
            Decimal(self.output_usd_per_mtok),
        )


def team_body(team: Team) -> dict[str, object]:
    """A team as the API shows it."""
    return {
        "team_id": team.team_id,
        "name": team.name,
        "is_suspended": team.is_suspended,
        "created_at": _time(team.created_at),
    }


def key_body(key: ApiKey) -> dict[str, object]:
    """A key as the API shows it: never the key itself."""
    return {
        "key_id": key.key_id,
        "team_id": key.team_id,
        "name": key.name,
        "is_revoked": key.revoked_at is not None,
        "created_at": _time(key.created_at),
        "revoked_at": _time(key.revoked_at),
    }


def price_body(price: Price) -> dict[str, object]:
    """A price as the API shows it."""
    return {
        "price_id": price.price_id,
        "model": price.model,
        "currency": price.currency,
        "input_usd_per_mtok": money_text(price.input_usd_per_mtok),
        "cached_input_usd_per_mtok": money_text(price.cached_input_usd_per_mtok),
        "output_usd_per_mtok": money_text(price.output_usd_per_mtok),
        "effective_from": _time(price.effective_from),
    }


def usage_body(
    team_id: str, start: datetime, end: datetime, summary: UsageSummary
) -> dict[str, object]:
    """A team's usage as the API shows it."""
    total = sum((line.cost_usd for line in summary.lines), Decimal(0))
    return {
        "team_id": team_id,
        "start": _time(start),
        "end": _time(end),
        "complete_through": _time(summary.complete_through),
        "unpriced_events": summary.unpriced_events,
        "total_cost_usd": money_text(total),
        "lines": [
            {
                "model": line.model,
                "key_id": line.key_id,
                "requests": line.requests,
                "prompt_tokens": line.prompt_tokens,
                "cached_tokens": line.cached_tokens,
                "completion_tokens": line.completion_tokens,
                "cost_usd": money_text(line.cost_usd),
            }
            for line in summary.lines
        ],
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
