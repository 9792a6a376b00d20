"""How long a piece of work may still take, on the monotonic clock."""

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Deadline:
    """A moment on this process's monotonic clock; only the time left crosses the wire."""

    at_s: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """The moment this many seconds from now."""
        return cls(time.monotonic() + seconds)

    @classmethod
    def from_header(cls, value: str | None, default_s: float) -> "Deadline":
        """Reads `x-millrace-deadline-ms`; what is missing or no number counts as the default."""
        if value is None or not value.isascii() or not value.isdigit():
            return cls.after(default_s)
        return cls.after(min(int(value) / 1000, default_s))

    def left_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at_s - time.monotonic())

    def left_ms_header(self) -> str:
        """The value of `x-millrace-deadline-ms` for the next hop."""
        return str(int(self.left_s() * 1000))

    def has_passed(self) -> bool:
        """True when nothing is left."""
        return self.left_s() <= 0.0
