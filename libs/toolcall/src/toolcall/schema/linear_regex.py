"""Python's regular expressions in time linear in the text, for patterns that clients send.

`re` backtracks: `^(a+)+$` takes it minutes on thirty characters, and nothing stops it. Here the
pattern, read by Python's own parser, becomes an automaton that is walked once over the text with
all of its states at a time (Thompson 1968). Look-around and anchors are answered beforehand for
every place in the text, by walks of their own. Only whether there is a match is told, not where
its groups are. What an automaton cannot do (back references, atomic groups) is refused.
"""

import re
import re._compiler as compiler  # type: ignore[import-not-found] # typeshed leaves it out
import re._constants as code  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from toolcall.errors import ToolCallError
from toolcall.schema.work import TooMuchWork

MOST_STATES = 2_500
"""States of one automaton: `{1,2048}` fits."""
MOST_STEPS = 1_000_000
"""States worked out anew in one walk, some 0.3 s. Only counted repeats of what overlaps
itself come near it: `x.{0,2000}y` on thousands of x."""
MOST_KEPT = 20_000
"""States in the steps that an automaton remembers, about a MB: later walks mostly repeat them."""
ONE_CHARACTER = frozenset((code.LITERAL, code.NOT_LITERAL, code.ANY, code.IN))
IRREGULAR = {
    code.GROUPREF: "a back reference",
    code.GROUPREF_EXISTS: "a condition on a group",
    code.POSSESSIVE_REPEAT: "a possessive repeat",
    code.ATOMIC_GROUP: "an atomic group",
}
REPEATS = (code.MAX_REPEAT, code.MIN_REPEAT)

States = frozenset[int]


class NotRegular(ToolCallError):
    """The pattern needs more than an automaton of MOST_STATES states."""


@dataclass(frozen=True)
class Anchor:
    """`^`, `$`, a word boundary: asked of Python for each place."""

    pattern: re.Pattern[str]

    def holds(self, text: str) -> list[bool]:
        """For each place between characters, whether the anchor matches there."""
        return [self.pattern.match(text, at) is not None for at in range(len(text) + 1)]


@dataclass(frozen=True)
class Look:
    """A look-ahead or look-behind."""

    inner: "Automaton"
    is_negative: bool

    def holds(self, text: str) -> list[bool]:
        """For each place between characters, whether what is looked for is (not) there."""
        return [found is not self.is_negative for found in self.inner.ends(text)]


@dataclass
class Automaton:
    """States with free moves (under a condition or none) and moves over one character.

    `is_backward`: it reads the text from its end to its beginning, as look-ahead does.
    """

    is_backward: bool = False
    conditions: list[Anchor | Look] = field(default_factory=list)
    free: list[list[tuple[int | None, int]]] = field(default_factory=list)
    moves: list[list[tuple[re.Pattern[str], int]]] = field(default_factory=list)
    start: int = 0
    accept: int = 0
    _closures: dict[tuple[States, int], States] = field(default_factory=dict)
    _steps: dict[tuple[States, str], States] = field(default_factory=dict)
    _kept: int = 0
    _steps_left: int = MOST_STEPS

    def finds(self, text: str) -> bool:
        """True when some part of the text matches."""
        return any(self.ends(text))

    def matches_whole(self, text: str) -> bool:
        """True when the text as a whole matches."""
        *_, at_end = self._walk(text, starts_anywhere=False)
        return at_end

    def ends(self, text: str) -> list[bool]:
        """For each place, whether a match ends there; backward, whether one begins there."""
        found = list(self._walk(text, starts_anywhere=True))
        return found[::-1] if self.is_backward else found

    def _walk(self, text: str, *, starts_anywhere: bool) -> Sequence[bool]:
        masks = self._masks(text)
        places = range(len(text) + 1)
        found = []
        self._steps_left = MOST_STEPS
        states: States = frozenset((self.start,))
        fresh = states if starts_anywhere else frozenset[int]()
        for at in reversed(places) if self.is_backward else places:
            states = self._closure(states, masks[at] if masks else 0)
            found.append(self.accept in states)
            following = at - 1 if self.is_backward else at
            if 0 <= following < len(text):
                states = self._step(states, text[following]) | fresh
        return found

    def _masks(self, text: str) -> list[int]:
        """For each place the conditions that hold there, as bits."""
        if not self.conditions:
            return []
        masks = [0] * (len(text) + 1)
        for bit, condition in enumerate(self.conditions):
            for at, holds in enumerate(condition.holds(text)):
                masks[at] |= holds << bit
        return masks

    def _closure(self, states: States, mask: int) -> States:
        known = self._closures.get((states, mask))
        if known is not None:
            return known
        reached = set(states)
        waiting = list(states)
        while waiting:
            for condition, target in self.free[waiting.pop()]:
                holds = condition is None or mask >> condition & 1
                if holds and target not in reached:
                    reached.add(target)
                    waiting.append(target)
        closure = frozenset(reached)
        self._make_room(len(closure))
        self._closures[states, mask] = closure
        return closure

    def _step(self, states: States, character: str) -> States:
        known = self._steps.get((states, character))
        if known is not None:
            return known
        reached = frozenset(
            target
            for state in states
            for test, target in self.moves[state]
            if test.match(character)
        )
        self._make_room(len(reached))
        self._steps[states, character] = reached
        return reached

    def _make_room(self, states: int) -> None:
        """Counts what is about to be remembered, which is also what was worked out anew."""
        self._steps_left -= states + 1
        if self._steps_left < 0:
            raise TooMuchWork(f"a regular expression takes over {MOST_STEPS:,} steps")
        self._kept += states + 1
        if self._kept > MOST_KEPT:
            self._closures.clear()
            self._steps.clear()
            self._kept = 0


def automaton_of(tree: Any) -> Automaton:
    """The automaton of a pattern that Python's parser has read. Raises NotRegular."""
    return _Builder(is_backward=False).build(tree, tree.state.flags)


class _Builder:
    """Builds one automaton, part by part; a part leads from one state to another."""

    def __init__(self, *, is_backward: bool) -> None:
        self._made = Automaton(is_backward)
        self._tests: dict[tuple[int, int], re.Pattern[str]] = {}

    def build(self, tree: Any, flags: int) -> Automaton:
        """The automaton of a parsed pattern."""
        self._made.start = self._state()
        self._made.accept = self._sequence(tree, flags, self._made.start)
        return self._made

    def _state(self) -> int:
        if len(self._made.free) >= MOST_STATES:
            raise NotRegular(f"it needs more than {MOST_STATES} states")
        self._made.free.append([])
        self._made.moves.append([])
        return len(self._made.free) - 1

    def _sequence(self, tree: Any, flags: int, state: int) -> int:
        """Adds the items after a state; the state behind them."""
        for item in reversed(list(tree)) if self._made.is_backward else tree:
            state = self._item(item, flags, state)
        return state

    def _item(self, item: Any, flags: int, state: int) -> int:
        operation, argument = item
        if operation in ONE_CHARACTER:
            target = self._state()
            test = self._tests.get((id(item), flags)) or _compiled(item, flags)
            self._tests[id(item), flags] = test
            self._made.moves[state].append((test, target))
            return target
        if operation in REPEATS:
            return self._repeat(argument, flags, state)
        if operation is code.BRANCH:
            return self._branch(argument[1], flags, state)
        if operation is code.SUBPATTERN:
            _, added, removed, tree = argument
            return self._sequence(tree, (flags | added) & ~removed, state)
        if operation in (code.AT, code.ASSERT, code.ASSERT_NOT):
            return self._conditional(item, flags, state)
        if operation is code.FAILURE:
            return self._state()
        raise NotRegular(f"it holds {IRREGULAR.get(operation, operation)}")

    def _repeat(self, argument: Any, flags: int, state: int) -> int:
        fewest, most, tree = argument
        for _ in range(fewest):
            state = self._sequence(tree, flags, state)
        end = self._state()
        self._free(state, end)
        if most is code.MAXREPEAT:
            # A loop through states of its own: parts that match nothing must not shortcut others.
            again = self._state()
            self._free(state, again)
            self._free(self._sequence(tree, flags, again), again)
            self._free(again, end)
            return end
        for _ in range(most - fewest):
            state = self._sequence(tree, flags, state)
            self._free(state, end)
        return end

    def _branch(self, options: Sequence[Any], flags: int, state: int) -> int:
        end = self._state()
        for option in options:
            begin = self._state()
            self._free(state, begin)
            self._free(self._sequence(option, flags, begin), end)
        return end

    def _conditional(self, item: Any, flags: int, state: int) -> int:
        target = self._state()
        self._made.conditions.append(_condition(item, flags))
        self._free(state, target, len(self._made.conditions) - 1)
        return target

    def _free(self, state: int, target: int, condition: int | None = None) -> None:
        self._made.free[state].append((condition, target))


def _condition(item: Any, flags: int) -> Anchor | Look:
    operation, argument = item
    if operation is code.AT:
        return Anchor(_compiled(item, flags))
    direction, tree = argument
    inner = _Builder(is_backward=direction > 0).build(tree, flags)
    return Look(inner, is_negative=operation is code.ASSERT_NOT)


def _compiled(item: Any, flags: int) -> re.Pattern[str]:
    """One item as a pattern of Python's, so that it means here what it means there."""
    state = parser.State()
    state.flags = flags
    compiled: re.Pattern[str] = compiler.compile(parser.SubPattern(state, [item]))
    return compiled
