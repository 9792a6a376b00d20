"""Teams, keys and prices as one versioned picture that followers copy.

Invariant: the database gives every committed change the next revision, in commit order. So
"everything above revision r" is exact, and a follower that slept gets the newest state of what
changed, not a queue.
"""

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import TypeVar


@dataclass(frozen=True)
class Team:
    """Who pays."""

    team_id: str
    name: str
    is_suspended: bool
    created_at: datetime
    revision: int


@dataclass(frozen=True)
class ApiKey:
    """A key of a team, without the key."""

    key_id: str
    sha256: bytes
    team_id: str
    name: str
    created_at: datetime
    revoked_at: datetime | None
    revision: int


@dataclass(frozen=True)
class Price:
    """What a model costs from `effective_from` on, until a newer price of the model begins."""

    price_id: str
    model: str
    currency: str
    input_usd_per_mtok: Decimal
    cached_input_usd_per_mtok: Decimal
    output_usd_per_mtok: Decimal
    effective_from: datetime
    revision: int


Row = TypeVar("Row", Team, ApiKey, Price)


@dataclass(frozen=True)
class DirectoryChange:
    """Rows above some revision, up to `revision`."""

    revision: int
    teams: list[Team] = field(default_factory=list)
    keys: list[ApiKey] = field(default_factory=list)
    prices: list[Price] = field(default_factory=list)


class Directory:
    """The newest committed state; each table is in the order of its rows' revisions."""

    def __init__(self) -> None:
        self.revision = 0
        self._teams: dict[str, Team] = {}
        self._keys: dict[str, ApiKey] = {}
        self._prices: dict[str, Price] = {}

    def apply(self, change: DirectoryChange) -> None:
        """Takes in rows that are newer than the present revision."""
        for team in sorted(change.teams, key=_revision):
            _put_last(self._teams, team.team_id, team)
        for key in sorted(change.keys, key=_revision):
            _put_last(self._keys, key.key_id, key)
        for price in sorted(change.prices, key=_revision):
            _put_last(self._prices, price.model, price)
        self.revision = change.revision

    def snapshot(self) -> DirectoryChange:
        """Everything: of each model only the price that holds now."""
        return self.since(-1)

    def since(self, revision: int) -> DirectoryChange:
        """What changed above this revision, in the order of the changes."""
        return DirectoryChange(
            self.revision,
            _newer(self._teams, revision),
            _newer(self._keys, revision),
            _newer(self._prices, revision),
        )


def _put_last(table: dict[str, Row], key: str, row: Row) -> None:
    table.pop(key, None)
    table[key] = row


def _newer(table: dict[str, Row], revision: int) -> list[Row]:
    newest_first: list[Row] = []
    for row in reversed(table.values()):
        if row.revision <= revision:
            break
        newest_first.append(row)
    return newest_first[::-1]


def _revision(row: Team | ApiKey | Price) -> int:
    return row.revision
