"""Client patterns in Python's dialect as regular trees.

Python's own parser reads the pattern, so that grammar and guard mean the same by it. A pattern is
searched for, as JSON Schema asks: where it is not anchored any text may stand around it. What a
regular language lacks (look-around, back references, word boundaries) is not translated at all.

Narrower than Python on purpose: `\\d` is 0-9, and `$` is the very end, not also the place before a
last line feed; JSON Schema's own dialect (ECMA 262) says both. Wider: `\\w`, `\\W` and `\\D` take
every character beyond ASCII, and then the tree is not exact.
"""

import re._constants as code  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from toolcall.grammar.characters import DIGITS, EVERY, Characters, characters, one_of
from toolcall.grammar.regular import ANY, EMPTY, One, Regular, Repeat, concat, either, lengths
from toolcall.schema.patterns import tree_of

MOST_ALTERNATIVES = 64
"""Alternatives to which anchors inside groups may lead."""
MOST_PARTS = 5000
"""Parts of all alternatives, 0.2 s; a string of a fifth of that many states is not held to its
pattern anyway (strings.py)."""
_HARMLESS_FLAGS = parser.SRE_FLAG_UNICODE | parser.SRE_FLAG_VERBOSE | parser.SRE_FLAG_DOTALL
_STARTS = (code.AT_BEGINNING, code.AT_BEGINNING_STRING)
_ENDS = (code.AT_END, code.AT_END_STRING)

_BEYOND_ASCII = characters([(0x80, 0x10FFFF)])
_ASCII_WORD = DIGITS | characters([(0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
_SPACE = one_of("\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | (
    characters([(0x2000, 0x200A)])
)
"""What str.isspace() says, which is what Python's `\\s` follows."""


@dataclass(frozen=True)
class _Category:
    """A category, in a set and in a negated set; each errs on its own side."""

    allowed: Characters
    is_wide: bool
    if_negated: Characters
    is_wide_if_negated: bool


_CATEGORIES = {
    code.CATEGORY_DIGIT: _Category(DIGITS, False, DIGITS, True),
    code.CATEGORY_NOT_DIGIT: _Category(DIGITS.complement(), True, DIGITS.complement(), False),
    code.CATEGORY_WORD: _Category(_ASCII_WORD | _BEYOND_ASCII, True, _ASCII_WORD, True),
    code.CATEGORY_NOT_WORD: _Category(
        _ASCII_WORD.complement(), True, _ASCII_WORD.complement() - _BEYOND_ASCII, True
    ),
    code.CATEGORY_SPACE: _Category(_SPACE, False, _SPACE, False),
    code.CATEGORY_NOT_SPACE: _Category(_SPACE.complement(), False, _SPACE.complement(), False),
}


@dataclass(frozen=True)
class Translation:
    """A pattern as a tree; `is_exact`: Python finds the pattern in every word of the tree."""

    tree: Regular
    is_exact: bool


class _Untranslatable(Exception):
    pass


@dataclass(frozen=True)
class _Anchored:
    """An alternative with the anchors that stood at its ends taken off."""

    at_start: bool
    parts: tuple[Any, ...]
    at_end: bool


@lru_cache(maxsize=1024)
def translate(pattern: str, *, is_whole: bool = False) -> Translation | None:
    """The texts in which Python finds the pattern, None if that cannot be said.

    `is_whole`: the texts that match it from end to end instead.
    """
    try:
        parsed = tree_of(pattern)
        if parsed.state.flags & ~_HARMLESS_FLAGS:
            return None
        reader = _Reader(is_dot_all=bool(parsed.state.flags & parser.SRE_FLAG_DOTALL))
        options = [
            concat(
                *(() if is_whole or option.at_start else (ANY,)),
                *map(reader.node, option.parts),
                *(() if is_whole or option.at_end else (ANY,)),
            )
            for option in _alternatives(list(parsed))
        ]
    except (_Untranslatable, RecursionError, parser.error):
        return None
    return Translation(either(*options), is_exact=not reader.is_wide)


def _alternatives(parts: Sequence[Any]) -> list[_Anchored]:
    """The pattern as alternatives whose anchors stand outside."""
    found = []
    for at_start, rest in _unanchored(list(parts), first=True):
        for at_end, inner in _unanchored(rest, first=False):
            found.append(_Anchored(at_start, tuple(inner), at_end))
            if len(found) > MOST_ALTERNATIVES:
                raise _Untranslatable
    return found


def _unanchored(parts: list[Any], *, first: bool) -> Iterator[tuple[bool, list[Any]]]:
    """Takes the anchors off one end; each result says whether one was there.

    One at a time, because every group may double their number.
    """
    if len(parts) > MOST_PARTS:
        raise _Untranslatable
    edge = parts[0 if first else -1] if parts else None
    rest = parts[1:] if first else parts[:-1]
    match edge:
        case (code.AT, place) if place in (_STARTS if first else _ENDS):
            for _, inner in _unanchored(rest, first=first):
                yield True, inner
        case (code.SUBPATTERN, (_, added, removed, group)) if _holds_anchor(group):
            if added or removed:
                raise _Untranslatable
            yield from _unanchored(_joined(list(group), rest, first=first), first=first)
        case (code.BRANCH, (_, options)) if _holds_anchor(options):
            for option in options:
                yield from _unanchored(_joined(list(option), rest, first=first), first=first)
        case _:
            yield False, parts


def _joined(edge: list[Any], rest: list[Any], *, first: bool) -> list[Any]:
    return edge + rest if first else rest + edge


def _holds_anchor(value: Any) -> bool:
    if isinstance(value, tuple | list | parser.SubPattern):
        return any(each is code.AT or _holds_anchor(each) for each in value)
    return False


class _Reader:
    """Turns the parser's nodes into trees; remembers whether one had to be wider."""

    def __init__(self, *, is_dot_all: bool) -> None:
        self.is_wide = False
        self._parts_left = MOST_PARTS
        self._any = EVERY if is_dot_all else EVERY - one_of("\n")

    def node(self, item: Any) -> Regular:
        """One node of the parser's tree."""
        self._parts_left -= 1
        if self._parts_left < 0:
            raise _Untranslatable
        kind, value = item
        match kind:
            case code.LITERAL:
                return One(self._set([item]))
            case code.NOT_LITERAL:
                return One(characters([(value, value)]).complement())
            case code.ANY:
                return One(self._any)
            case code.IN:
                return One(self._set(value))
            case code.BRANCH:
                return either(*(self._all(option) for option in value[1]))
            case code.SUBPATTERN:
                _, added, removed, inner = value
                if added or removed:
                    raise _Untranslatable
                return self._all(inner)
            case code.MAX_REPEAT | code.MIN_REPEAT:
                low, high, inner = value
                part = self._all(inner)
                if lengths(part)[1] == 0:
                    return EMPTY  # however often
                return Repeat(part, low, None if high is code.MAXREPEAT else high)
            case _:
                raise _Untranslatable

    def _all(self, items: Any) -> Regular:
        return concat(*map(self.node, items))

    def _set(self, items: Sequence[Any]) -> Characters:
        is_negated = items[0][0] is code.NEGATE
        ranges: list[tuple[int, int]] = []
        for kind, value in items[is_negated:]:
            match kind:
                case code.LITERAL:
                    ranges.append((value, value))
                case code.RANGE:
                    ranges.append(value)
                case code.CATEGORY if value in _CATEGORIES:
                    category = _CATEGORIES[value]
                    ranges += (category.if_negated if is_negated else category.allowed).ranges
                    self.is_wide |= category.is_wide_if_negated if is_negated else category.is_wide
                case _:
                    raise _Untranslatable
        allowed = characters(ranges)
        if is_negated:
            allowed = allowed.complement()
        if not allowed.ranges:
            raise _Untranslatable
        return allowed
