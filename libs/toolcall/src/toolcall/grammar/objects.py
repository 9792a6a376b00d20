"""Keys in any order, each at most once and the required ones always: an automaton over sets.

A state is the set of keys that have been written, so n keys have 2**n states and n * 2**(n-1)
steps between them. Where that is too much, the keys are cut into windows in declared order: inside
a window any order, the windows one after the other. Either way all that is accepted has its
required keys and no key twice.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from toolcall.grammar.ebnf import NOTHING, Rules, sequence

LARGEST_WINDOW = 8
MOST_STEPS = 3100
"""Steps of all objects of a grammar together. xgrammar takes about 8 us for each. One object of
twenty-four keys still has the largest windows."""


@dataclass(frozen=True)
class Entry:
    """A key with its value."""

    expression: str
    is_required: bool


@dataclass(frozen=True)
class Frame:
    """What stands between two entries, after the last, and in their place when there are none."""

    separator: str
    end: str
    empty: str


@dataclass(frozen=True)
class Limits:
    """How many entries there may be, as far as the automaton can count them."""

    least: int = 0
    most: int | None = None


def window_for(sizes: Iterable[int]) -> int:
    """The largest window with which objects of these sizes stay within MOST_STEPS."""
    counts = list(sizes)
    for window in range(LARGEST_WINDOW, 1, -1):
        if sum(_steps(count, window) for count in counts) <= MOST_STEPS:
            return window
    return 1


def counts_exactly(count: int, window: int, limits: Limits, *, is_open: bool) -> bool:
    """Whether `any_order` can hold these limits for so many keys."""
    is_trivial = limits.least <= 1 and (limits.most is None or limits.most >= count)
    return not is_open if is_trivial else (count <= window and not is_open)


def any_order(
    rules: Rules,
    entries: Sequence[Entry],
    frame: Frame,
    window: int,
    limits: Limits = Limits(),
    extra: str | None = None,
) -> str | None:
    """An expression for the entries in any order and what ends them; None when nothing fits.

    `extra` stands for entries with other keys, any number of them anywhere.
    """
    return _Order(rules, frame, extra, limits).expression(entries, window)


class _Order:
    def __init__(self, rules: Rules, frame: Frame, extra: str | None, limits: Limits) -> None:
        self._rules, self._frame, self._extra, self._limits = rules, frame, extra, limits
        # Without separators the state before the first entry is like any other.
        self._is_uniform = frame.separator == NOTHING and not limits.least

    def expression(self, entries: Sequence[Entry], window: int) -> str | None:
        """The state in which nothing has been written."""
        windows = [entries[at : at + window] for at in range(0, len(entries), window)]
        is_counted = len(windows) == 1 and self._extra is None
        limits = self._limits if is_counted else Limits()
        after = self._state([self._frame.end])
        first = self._first([], None if self._limits.least else self._frame.empty, after)
        for place in range(len(windows) - 1, -1, -1):
            here = windows[place]
            is_first = place == 0 and self._extra is None and not self._is_uniform
            states = self._states(here, after, limits, skips_start=is_first)
            after = states[0]
            if self._is_uniform:
                first = after
                continue
            begun = [(entry, states[1 << at]) for at, entry in enumerate(here)]
            is_skippable = not any(entry.is_required for entry in here)
            first = self._first(
                begun if limits.most != 0 else [], first if is_skippable else None, after
            )
        return first

    def _states(
        self, entries: Sequence[Entry], after: str | None, limits: Limits, *, skips_start: bool
    ) -> list[str | None]:
        """What may follow once the entries of each set have been written; sets are bits."""
        full = (1 << len(entries)) - 1
        required = sum(1 << at for at, entry in enumerate(entries) if entry.is_required)
        further = [self._further(entry.expression) for entry in entries]
        states: list[str | None] = [None] * (full + 1)
        states[full] = after if full.bit_count() >= limits.least else None
        for written in range(full - 1, 0 if skips_start else -1, -1):
            options = []
            count = written.bit_count()
            if limits.most is None or count < limits.most:
                for at, expression in enumerate(further):
                    rest = states[written | 1 << at]
                    if not written >> at & 1 and rest is not None:
                        options.append(f"{expression} {rest}")
            if after is not None and written & required == required and count >= limits.least:
                options.append(after)
            states[written] = self._state(options)
        return states

    def _further(self, entry: str) -> str:
        """An entry after others. A rule, so that states have no characters and no masks."""
        separator = self._frame.separator
        return entry if separator == NOTHING else self._rules.share(sequence(separator, entry))

    def _state(self, options: list[str]) -> str | None:
        """A state with these ways on, and further entries with other keys."""
        if not options:
            return None
        if self._extra is None:
            return self._rules.choice(options)
        name = self._rules.reserve()
        again = f"{self._further(self._extra)} {name}"
        self._rules.define(name, " | ".join([*dict.fromkeys(options), again]))
        return name

    def _first(
        self, begun: list[tuple[Entry, str | None]], otherwise: str | None, after: str | None
    ) -> str | None:
        """The state before the first entry."""
        options = [sequence(entry.expression, rest) for entry, rest in begun if rest is not None]
        if self._extra is not None and after is not None:
            options.append(sequence(self._extra, after))
        if otherwise is not None:
            options.append(otherwise)
        return self._rules.choice(options) if options else None


def _steps(count: int, window: int) -> int:
    whole, rest = divmod(count, window)
    return whole * _steps_of(window) + _steps_of(rest)


def _steps_of(keys: int) -> int:
    return keys << keys >> 1
