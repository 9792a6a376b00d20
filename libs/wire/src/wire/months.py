"""The billing period: a UTC month, the same one for whoever asks and whoever answers."""

from datetime import UTC, datetime


def month_of(moment: datetime) -> tuple[datetime, datetime]:
    """Start (inclusive) and end (exclusive) of the UTC month that holds this aware moment."""
    start = moment.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    end = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return start, end
