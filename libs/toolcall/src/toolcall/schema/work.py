"""What one check may cost: a meter that everything spends from whose work a client can multiply.

References in combinators, long definitions that are used again, expressions that are searched in
names and constants, each harmless by itself: all of them together end after about a second of CPU,
whatever schema and answer say.
"""

from toolcall.errors import ToolCallError

MOST_STEPS = 5_000_000
"""Steps of one check, each some 0.2 us (one state of an automaton): about a second. An answer of
10,000 values under five schemas each takes less than half of them."""


class TooMuchWork(ToolCallError):
    """The check takes more steps than it was given."""


class Work:
    """The steps that a check has left."""

    def __init__(self, most: int = MOST_STEPS, whole: "Work | None" = None) -> None:
        self._most = most
        self._left = most
        self._whole = whole

    def part(self, most: int) -> "Work":
        """At most so much of this work: what is spent there is spent here too."""
        return Work(most, self)

    def spend(self, steps: int) -> None:
        """Counts steps that were or will be taken. Raises TooMuchWork where none are left."""
        self._left -= steps
        if self._left < 0:
            raise TooMuchWork(f"it takes over {self._most:,} steps")
        if self._whole is not None:
            self._whole.spend(steps)
