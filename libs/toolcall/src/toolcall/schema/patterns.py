"""Regular expressions of client schemas: Python's dialect, searched as JSON Schema asks.

`re` is fastest and is used where its backtracking is bounded for the text at hand; everything else
goes through an automaton (`linear_regex.py`). Both spend from a meter (`work.py`). So no pattern
and no text, both of which come from outside, can hold up the process.
"""

import math
import re
import re._compiler as compiler  # type: ignore[import-not-found] # typeshed leaves it out
import re._constants as code  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import warnings
from collections.abc import Sequence
from functools import cached_property, lru_cache
from threading import Lock
from typing import Any

from toolcall.schema.linear_regex import IRREGULAR, REPEATS, Automaton, NotRegular, automaton_of
from toolcall.schema.work import TooMuchWork, Work

MOST_PATTERN = 10_000
"""Characters of an expression; what is longer is a list and belongs into an enum or a choice."""
FEW_BITS = 12
"""`re` searches where it takes up to this power of two of steps: 25 us, an automaton's time for a
line of text."""
MOST_BITS = 24
"""As far it goes where there can be no automaton: some 0.2 s where all the steps are needed."""
BACKTRACKED = 32
"""Steps of `re` in one of `work.py`."""
SEARCHED = 4
"""Steps of any search."""
MOST_READ = 200_000
"""Steps of compiling one expression: 40 ms. MOST_PATTERN plain characters take half of them, five
classes over all of Unicode the other half."""
READ, BUILT = 10, 8
"""Steps of compiling a character of an expression, and of adding a state to an automaton."""
WIDE_CLASS, SPANNED = 800, 64
"""Steps of compiling a class with characters beyond Latin-1, or one that ignores case; and the
characters in a range of such a class that take one step more: Python goes through all of them."""
GROUPS = (*REPEATS, code.POSSESSIVE_REPEAT, code.SUBPATTERN, code.ASSERT, code.ASSERT_NOT)
"""What holds one tree, as the last of its arguments."""
LONGEST_TEXT = 1_000_000
"""Characters that no answer reaches."""
_WARNING_FILTERS = Lock()


def search(pattern: str, text: str, work: Work | None = None) -> bool:
    """True when the pattern, one without a `fault_of`, is found in the text.

    Spends from `work` if there is one. Raises TooMuchWork.
    """
    return _sought(pattern).finds(text, work or Work())


def matches_whole(pattern: str, text: str, work: Work | None = None) -> bool:
    """True when the whole text is one match of the pattern. Spends and raises as `search` does."""
    return _whole(pattern).is_whole(text, work or Work())


def tree_of(pattern: str) -> Any:
    """The pattern as Python's own parser reads it, without its remarks: `[[a]` means what it says.

    Raises re.error.
    """
    # The filters are the process's, and schemas are read in one thread while answers are checked
    # in another: each would put back what the other had set.
    with _WARNING_FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return parser.parse(pattern)


def fault_of(pattern: str, *, is_whole: bool = False) -> str | None:
    """Why a pattern cannot be searched for (or matched as a whole), None when it can."""
    if len(pattern) > MOST_PATTERN:
        return f"It has more than {MOST_PATTERN:,} characters."
    try:
        (_whole(pattern) if is_whole else _sought(pattern)).check()
    except (re.error, OverflowError, RecursionError) as error:
        return f"It does not compile: {error}."
    except NotRegular as error:
        return f"It could take exponential time, and {error}."
    except TooMuchWork:
        return "It holds too many or too wide classes of characters."
    return None


def reading(pattern: str) -> int:
    """The steps that it took to see that a pattern has no `fault_of`."""
    return _sought(pattern).reading()


def may_be_slow(pattern: str) -> bool:
    """True when `re` itself could be held up by a text: its steps grow faster than the text."""
    return _sought(pattern).is_slow


class _Pattern:
    """A parsed pattern in the forms that are needed."""

    def __init__(self, pattern: str, tree: Any, *, begins_anywhere: bool) -> None:
        self._tree = tree
        self._begins_anywhere = begins_anywhere
        self._length = len(pattern)
        self._known_bits: dict[int, float] = {}
        self._compiling = READ * len(pattern) + _classes(tree, tree.state.flags)
        Work(MOST_READ).spend(self._compiling)
        self._compiled: re.Pattern[str] = compiler.compile(tree)

    def finds(self, text: str, work: Work) -> bool:
        automaton = self._automaton_for(text, work)
        if automaton is None:
            return self._compiled.search(text) is not None
        return automaton.finds(text, work)

    def is_whole(self, text: str, work: Work) -> bool:
        automaton = self._automaton_for(text, work)
        if automaton is None:
            return self._compiled.fullmatch(text) is not None
        return automaton.matches_whole(text, work)

    def check(self) -> None:
        """Raises NotRegular when some text would need an automaton that cannot be built."""
        if self.is_slow:
            self._raise_irregular()

    def reading(self) -> int:
        """The steps of compiling it, and of its automaton where some text needs one."""
        if self.is_slow and isinstance(self._automaton, Automaton):
            return self._compiling + BUILT * self._automaton.size
        return self._compiling

    @cached_property
    def is_slow(self) -> bool:
        """True when `re` would be slow in some text, so that an automaton has to be built."""
        return self.bits(LONGEST_TEXT) > MOST_BITS

    def _automaton_for(self, text: str, work: Work) -> Automaton | None:
        """The automaton that is to read this text, None where `re` is."""
        work.spend(SEARCHED)
        # Worked out once for all lengths up to the next power of two: it reads the whole pattern.
        size = len(text).bit_length()
        if size not in self._known_bits:
            work.spend(self._length)
            self._known_bits[size] = self.bits(2**size)
        bits = self._known_bits[size]
        if bits > FEW_BITS and isinstance(self._automaton, Automaton):
            return self._automaton
        if bits > MOST_BITS:
            self._raise_irregular()
        work.spend(int(2**bits) // BACKTRACKED)
        return None

    def _raise_irregular(self) -> None:
        if isinstance(self._automaton, str):
            raise NotRegular(self._automaton)

    def bits(self, length: int) -> float:
        """An upper bound of the steps on a text of this length, as a power of two.

        It is the ways through the pattern, times the characters that every way reads at least.
        """
        longest = math.log2(length + 2)
        fixed = math.log2(min(self._tree.getwidth()[0], length) + 1)
        return _bits(self._tree, longest) + (longest + fixed if self._begins_anywhere else 0)

    @cached_property
    def _automaton(self) -> Automaton | str:
        """The pattern as an automaton, or why it cannot be one."""
        try:
            return automaton_of(self._tree)
        except NotRegular as error:
            return str(error)


@lru_cache(maxsize=512)
def _sought(pattern: str) -> _Pattern:
    """The pattern as it is searched for: a part at either end is as good as fewer of it."""
    tree = tree_of(pattern)
    if not _is_irregular(tree):
        for end in (0, -1):
            if len(tree) and tree[end][0] in REPEATS:
                fewest, _, part = tree[end][1]
                tree[end] = (tree[end][0], (fewest, fewest, part))
    return _Pattern(pattern, tree, begins_anywhere=not _is_anchored(tree))


@lru_cache(maxsize=512)
def _whole(pattern: str) -> _Pattern:
    return _Pattern(pattern, tree_of(pattern), begins_anywhere=False)


def _bits(tree: Any, longest: float) -> float:
    return sum(_bits_of(operation, argument, longest) for operation, argument in tree)


def _bits_of(operation: Any, argument: Any, longest: float) -> float:
    if operation in REPEATS:
        fewest, most, tree = argument
        inner = _bits(tree, longest)
        if most is code.MAXREPEAT:
            return math.inf if inner else longest
        return float(most * inner + min(math.log2(most - fewest + 1), longest))
    if operation is code.BRANCH:
        options = argument[1]
        return math.log2(len(options)) + max(_bits(option, longest) for option in options)
    if operation in (code.SUBPATTERN, code.ASSERT, code.ASSERT_NOT):
        return _bits(argument[-1], longest)
    return math.inf if operation in IRREGULAR and operation is not code.GROUPREF else 0


def _classes(tree: Any, flags: int) -> int:
    """The steps of compiling the classes of characters in a parsed pattern."""
    steps = 0
    for operation, argument in tree:
        if operation is code.IN:
            steps += _class(argument, flags)
        within = flags | argument[1] if operation is code.SUBPATTERN else flags
        steps += sum(_classes(part, within) for part in _parts(operation, argument))
    return steps


def _class(members: Any, flags: int) -> int:
    ranges = [
        argument if operation is code.RANGE else (argument, argument)
        for operation, argument in members
        if operation in (code.LITERAL, code.RANGE)
    ]
    if not flags & re.IGNORECASE and all(last < 256 for _, last in ranges):
        return 0
    spanned: int = sum(last - first for first, last in ranges)
    return WIDE_CLASS + spanned // SPANNED


def _is_irregular(tree: Any) -> bool:
    return any(
        operation in IRREGULAR or any(map(_is_irregular, _parts(operation, argument)))
        for operation, argument in tree
    )


def _parts(operation: Any, argument: Any) -> Sequence[Any]:
    """The trees inside one item of a tree."""
    if operation is code.BRANCH:
        options: Sequence[Any] = argument[1]
        return options
    if operation is code.ATOMIC_GROUP:
        return (argument,)
    if operation is code.GROUPREF_EXISTS:
        return [part for part in argument[1:] if part is not None]
    return (argument[-1],) if operation in GROUPS else ()


def _is_anchored(tree: Any) -> bool:
    """True when a match can only begin at the beginning of the text."""
    if not len(tree) or tree.state.flags & re.MULTILINE:
        return False
    operation, argument = tree[0]
    return operation is code.AT and argument in (code.AT_BEGINNING, code.AT_BEGINNING_STRING)
