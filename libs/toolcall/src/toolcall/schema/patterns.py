"""Regular expressions of client schemas: Python's dialect, searched as JSON Schema asks.

`re` is fastest and is used where its backtracking is bounded for the text at hand; everything else
goes through an automaton (`linear_regex.py`). So no pattern and no text, both of which come from
outside, can hold up the process.
"""

import math
import re
import re._compiler as compiler  # type: ignore[import-not-found] # typeshed leaves it out
import re._constants as code  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import warnings
from functools import cached_property, lru_cache
from typing import Any

from toolcall.schema.linear_regex import IRREGULAR, REPEATS, Automaton, NotRegular, automaton_of

MOST_BITS = 24
"""`re` may take up to this power of two of steps: some 0.2 s where all of them are needed."""
LONGEST_TEXT = 1_000_000
"""Characters that no answer reaches."""


def search(pattern: str, text: str) -> bool:
    """True when the pattern, one without a `fault_of`, is found in the text."""
    return _sought(pattern).finds(text)


def matches_whole(pattern: str, text: str) -> bool:
    """True when the whole text is one match of the pattern."""
    return _whole(pattern).is_whole(text)


def fault_of(pattern: str, *, is_whole: bool = False) -> str | None:
    """Why a pattern cannot be searched for (or matched as a whole), None when it can."""
    try:
        (_whole(pattern) if is_whole else _sought(pattern)).check()
    except (re.error, OverflowError, RecursionError) as error:
        return f"It does not compile: {error}."
    except NotRegular as error:
        return f"It could take exponential time, and {error}."
    return None


def may_be_slow(pattern: str, length: int) -> bool:
    """True when `re` itself could be held up by a text of this length."""
    return _sought(pattern).bits(length) > MOST_BITS


class _Pattern:
    """A parsed pattern in the forms that are needed."""

    def __init__(self, tree: Any, *, begins_anywhere: bool) -> None:
        self._tree = tree
        self._begins_anywhere = begins_anywhere
        self._compiled: re.Pattern[str] = compiler.compile(tree)

    def finds(self, text: str) -> bool:
        if self.bits(len(text)) <= MOST_BITS:
            return self._compiled.search(text) is not None
        return self._automaton.finds(text)

    def is_whole(self, text: str) -> bool:
        if self.bits(len(text)) <= MOST_BITS:
            return self._compiled.fullmatch(text) is not None
        return self._automaton.matches_whole(text)

    def check(self) -> None:
        """Raises NotRegular when some text would need an automaton that cannot be built."""
        if self.bits(LONGEST_TEXT) > MOST_BITS:
            _ = self._automaton

    def bits(self, length: int) -> float:
        """An upper bound of the steps on a text of this length, as a power of two.

        It is the ways through the pattern, times the characters that every way reads at least.
        """
        longest = math.log2(length + 2)
        fixed = math.log2(min(self._tree.getwidth()[0], length) + 1)
        return _bits(self._tree, longest) + (longest + fixed if self._begins_anywhere else 0)

    @cached_property
    def _automaton(self) -> Automaton:
        return automaton_of(self._tree)


@lru_cache(maxsize=512)
def _sought(pattern: str) -> _Pattern:
    """The pattern as it is searched for: a part at either end is as good as fewer of it."""
    tree = _parse(pattern)
    if not _is_irregular(tree):
        for end in (0, -1):
            if len(tree) and tree[end][0] in REPEATS:
                fewest, _, part = tree[end][1]
                tree[end] = (tree[end][0], (fewest, fewest, part))
    return _Pattern(tree, begins_anywhere=not _is_anchored(tree))


@lru_cache(maxsize=512)
def _whole(pattern: str) -> _Pattern:
    return _Pattern(_parse(pattern), begins_anywhere=False)


def _parse(pattern: str) -> Any:
    with warnings.catch_warnings():
        # `[[a]` means what it says; a client's pattern is no reason to warn in our log.
        warnings.simplefilter("ignore", FutureWarning)
        return parser.parse(pattern)


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


def _is_irregular(tree: Any) -> bool:
    for operation, argument in tree:
        if operation in IRREGULAR:
            return True
        parts = argument[1] if operation is code.BRANCH else [argument]
        if operation in REPEATS or operation in (code.SUBPATTERN, code.ASSERT, code.ASSERT_NOT):
            parts = [argument[-1]]
        elif operation is not code.BRANCH:
            continue
        if any(map(_is_irregular, parts)):
            return True
    return False


def _is_anchored(tree: Any) -> bool:
    """True when a match can only begin at the beginning of the text."""
    if not len(tree) or tree.state.flags & re.MULTILINE:
        return False
    operation, argument = tree[0]
    return operation is code.AT and argument in (code.AT_BEGINNING, code.AT_BEGINNING_STRING)
