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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from toolcall.errors import ToolCallError
from toolcall.schema.work import Work

MOST_STATES = 2_500
"""States of one automaton and of all that it looks around with: `{1,2048}` fits."""
COMPILED = 10
"""States that a test counts as that Python has to compile: some 20 us."""
MOST_STEPS = 1_000_000
"""Steps (schema/work.py) for states worked out anew in one walk, some 0.2 s. Only counted repeats
of what overlaps itself come near it: `x.{0,2000}y` on thousands of x."""
WALKED = 3
"""Steps of walking over one character by known states."""
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
Test = Callable[[str], object]
"""Whether a character is one of those that a move is made over."""


class NotRegular(ToolCallError):
    """The pattern needs more than an automaton of MOST_STATES states."""


@dataclass(frozen=True)
class Anchor:
    """`^`, `$`, a word boundary: asked of Python for each place."""

    pattern: re.Pattern[str]

    def holds(self, text: str, work: Work) -> list[bool]:
        """For each place between characters, whether the anchor matches there."""
        work.spend(len(text))
        return [self.pattern.match(text, at) is not None for at in range(len(text) + 1)]


@dataclass(frozen=True)
class Look:
    """A look-ahead or look-behind."""

    inner: "Automaton"
    is_negative: bool

    def holds(self, text: str, work: Work) -> list[bool]:
        """For each place between characters, whether what is looked for is (not) there."""
        return [found is not self.is_negative for found in self.inner.ends(text, work)]


@dataclass
class Automaton:
    """States with free moves (under a condition or none) and moves over one character.

    `is_backward`: it reads the text from its end to its beginning, as look-ahead does. What works
    on a text raises TooMuchWork where that keeps more states busy than there is work left for.
    """

    is_backward: bool = False
    conditions: list[Anchor | Look] = field(default_factory=list)
    free: list[list[tuple[int | None, int]]] = field(default_factory=list)
    moves: list[list[tuple[Test, int]]] = field(default_factory=list)
    start: int = 0
    accept: int = 0
    size: int = 0
    """What counts towards MOST_STATES."""
    _closures: dict[tuple[States, int], States] = field(default_factory=dict)
    _steps: dict[tuple[States, str], States] = field(default_factory=dict)
    _kept: int = 0

    def finds(self, text: str, work: Work) -> bool:
        """True when some part of the text matches."""
        return any(self.ends(text, work))

    def matches_whole(self, text: str, work: Work) -> bool:
        """True when the text as a whole matches."""
        *_, at_end = self._walk(text, work, starts_anywhere=False)
        return at_end

    def ends(self, text: str, work: Work) -> list[bool]:
        """For each place, whether a match ends there; backward, whether one begins there."""
        found = list(self._walk(text, work, starts_anywhere=True))
        return found[::-1] if self.is_backward else found

    def _walk(self, text: str, work: Work, *, starts_anywhere: bool) -> Sequence[bool]:
        work.spend(WALKED * len(text))
        masks = self._masks(text, work)
        places = range(len(text) + 1)
        found = []
        anew = work.part(MOST_STEPS)
        states: States = frozenset((self.start,))
        fresh = states if starts_anywhere else frozenset[int]()
        for at in reversed(places) if self.is_backward else places:
            states = self._closure(states, masks[at] if masks else 0, anew)
            found.append(self.accept in states)
            following = at - 1 if self.is_backward else at
            if 0 <= following < len(text):
                states = self._step(states, text[following], anew) | fresh
        return found

    def _masks(self, text: str, work: Work) -> list[int]:
        """For each place the conditions that hold there, as bits."""
        if not self.conditions:
            return []
        masks = [0] * (len(text) + 1)
        for bit, condition in enumerate(self.conditions):
            for at, holds in enumerate(condition.holds(text, work)):
                masks[at] |= holds << bit
        return masks

    def _closure(self, states: States, mask: int, work: Work) -> States:
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
        work.spend(len(closure) + 1)
        self._make_room(len(closure))
        self._closures[states, mask] = closure
        return closure

    def _step(self, states: States, character: str, work: Work) -> States:
        known = self._steps.get((states, character))
        if known is not None:
            return known
        work.spend(len(states) + 1)
        reached = frozenset(
            target for state in states for test, target in self.moves[state] if test(character)
        )
        self._make_room(len(reached))
        self._steps[states, character] = reached
        return reached

    def _make_room(self, states: int) -> None:
        """Counts what is about to be remembered."""
        self._kept += states + 1
        if self._kept > MOST_KEPT:
            self._closures.clear()
            self._steps.clear()
            self._kept = 0


def automaton_of(tree: Any) -> Automaton:
    """The automaton of a pattern that Python's parser has read. Raises NotRegular."""
    counted = count(1)
    made = _Builder(counted, is_backward=False).build(tree, tree.state.flags)
    made.size = next(counted)
    return made


class _Builder:
    """Builds one automaton, part by part; a part leads from one state to another.

    A part that is repeated is one item of the tree: its tests and conditions are made once.
    """

    def __init__(self, counted: Iterator[int], *, is_backward: bool) -> None:
        self._counted = counted
        """The number of the next state, here or in what the automaton looks around with."""
        self._made = Automaton(is_backward)
        self._tests: dict[tuple[object, int], Test] = {}
        self._conditions: dict[tuple[object, int], int] = {}

    def build(self, tree: Any, flags: int) -> Automaton:
        """The automaton of a parsed pattern."""
        self._made.start = self._state()
        self._made.accept = self._sequence(tree, flags, self._made.start)
        return self._made

    def _state(self) -> int:
        self._count()
        self._made.free.append([])
        self._made.moves.append([])
        return len(self._made.free) - 1

    def _count(self) -> None:
        if next(self._counted) > MOST_STATES:
            raise NotRegular(f"it needs more than {MOST_STATES} states")

    def _sequence(self, tree: Any, flags: int, state: int) -> int:
        """Adds the items after a state; the state behind them."""
        for item in reversed(list(tree)) if self._made.is_backward else tree:
            state = self._item(item, flags, state)
        return state

    def _item(self, item: Any, flags: int, state: int) -> int:
        operation, argument = item
        if operation in ONE_CHARACTER:
            target = self._state()
            self._made.moves[state].append((self._test(item, flags), target))
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

    def _test(self, item: Any, flags: int) -> Test:
        operation, argument = item
        key = (id(item) if operation is code.IN else item, flags)
        test = self._tests.get(key)
        if test is None:
            if operation is code.LITERAL and not flags & re.IGNORECASE:
                test = chr(argument).__eq__
            else:
                for _ in range(COMPILED):
                    self._count()
                test = _compiled(item, flags).match
            self._tests[key] = test
        return test

    def _repeat(self, argument: Any, flags: int, state: int) -> int:
        fewest, most, tree = argument
        begin = state
        for _ in range(fewest):
            state = self._sequence(tree, flags, state)
            if state == begin:
                return state  # nothing, however often
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
            begin, state = state, self._sequence(tree, flags, state)
            if state == begin:
                break
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
        key = (item if item[0] is code.AT else id(item), flags)
        if key not in self._conditions:
            self._conditions[key] = len(self._made.conditions)
            self._made.conditions.append(self._condition(item, flags))
        self._free(state, target, self._conditions[key])
        return target

    def _condition(self, item: Any, flags: int) -> Anchor | Look:
        operation, argument = item
        if operation is code.AT:
            return Anchor(_compiled(item, flags))
        direction, tree = argument
        inner = _Builder(self._counted, is_backward=direction > 0).build(tree, flags)
        return Look(inner, is_negative=operation is code.ASSERT_NOT)

    def _free(self, state: int, target: int, condition: int | None = None) -> None:
        self._made.free[state].append((condition, target))


def _compiled(item: Any, flags: int) -> re.Pattern[str]:
    """One item as a pattern of Python's, so that it means here what it means there."""
    state = parser.State()
    state.flags = flags
    compiled: re.Pattern[str] = compiler.compile(parser.SubPattern(state, [item]))
    return compiled
