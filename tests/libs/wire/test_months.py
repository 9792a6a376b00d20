"""A moment belongs to exactly one UTC month."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from wire.months import month_of

TICK = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)),
        (datetime(2026, 12, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)),
        (datetime(2028, 2, 1, tzinfo=UTC), datetime(2028, 3, 1, tzinfo=UTC)),
    ],
)
def test_a_month_holds_its_first_moment_and_its_last_but_not_the_next(start, end):
    assert month_of(start) == month_of(end - TICK) == (start, end)
    assert month_of(end)[0] == end


def test_the_month_is_that_of_utc_wherever_the_moment_was_read():
    early_in_tokyo = datetime(2026, 12, 1, 8, 59, tzinfo=timezone(timedelta(hours=9)))

    assert month_of(early_in_tokyo)[0] == datetime(2026, 11, 1, tzinfo=UTC)
