"""The answer's text as it arrives, read once from front to back.

A reader is a generator: it yields where the text so far does not decide and is resumed when there
is more, so the code of a format reads like the format. Invariants: what a reader makes of the text
does not depend on how the text was cut, and no character is looked at twice, but for the beginning
of a literal and a bounded look ahead.
"""

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TypeVar

from toolcall.errors import ToolCallError

T = TypeVar("T")
Reading = Generator[None, None, T]

END = ""
"""The stop that ends every text: the answer is over."""
BLANKS = " \t\r\n"
MOST_BEHIND = 64
"""Characters kept for `behind`; longer than any literal."""
MOST_BLANKS_AHEAD = 64
"""In a row. A look ahead keeps its text and adds each push to it, so it must stay short."""
_BLANKS = re.compile(f"[{BLANKS}]*")
ANY_MARK = "[\ud800-\udfff]"
_MARK = re.compile(ANY_MARK)


class Unfinished(ToolCallError):
    """The answer ended where a call had to go on."""


class Stops:
    """Literals that end a run of text; every mark ends one too."""

    def __init__(self, literals: tuple[str, ...]) -> None:
        self.literals = literals
        longest_first = sorted(literals, key=len, reverse=True)
        self.search = re.compile("|".join([*map(re.escape, longest_first), ANY_MARK])).search
        self.longest = max(map(len, literals), default=1)
        beginnings = [_beginnings(literal[:-1]) for literal in literals if len(literal) > 1]
        self._begun = re.compile(f"(?:{'|'.join(beginnings)})\\Z").search if beginnings else None

    def sure_length(self, text: str, start: int) -> int:
        """Where the end of `text` may be the beginning of a literal, else its length."""
        if self._begun is None:
            return len(text)
        begun = self._begun(text, max(start, len(text) - self.longest + 1))
        return begun.start() if begun else len(text)


@lru_cache(maxsize=512)
def stops(*literals: str) -> Stops:
    """The stops of these literals, which come from a format's table: few, and soon all known."""
    return Stops(literals)


def has_mark(text: str) -> bool:
    """True when a control token stands in the text."""
    return _MARK.search(text) is not None


class Source:
    """What has arrived and how far it has been read; positions count from the answer's start."""

    def __init__(self) -> None:
        self.is_over = False
        self.is_cut = False
        """True when the answer ended at its length limit."""
        self._text = ""
        self._at = 0
        self._before = 0
        self._is_looking = False

    @property
    def position(self) -> int:
        """The number of characters read."""
        return self._before + self._at

    def add(self, text: str) -> None:
        """More of the answer."""
        if self._is_looking:
            self._text += text
            return
        forgotten = max(0, self._at - MOST_BEHIND)
        self._before += forgotten
        self._text = self._text[forgotten:] + text
        self._at -= forgotten

    def end(self, *, is_cut: bool) -> None:
        """The answer is over."""
        self.is_over, self.is_cut = True, is_cut

    @contextmanager
    def lookahead(self) -> Iterator[None]:
        """What is read inside is unread again at the end; keep it short, the text is kept."""
        start, self._is_looking = self.position, True
        try:
            yield
        finally:
            self._at, self._is_looking = start - self._before, False

    def behind(self, position: int) -> str:
        """The last few characters before a position that has just been read."""
        at = position - self._before
        return self._text[max(0, at - MOST_BEHIND) : at]

    def unread(self, text: str) -> None:
        """Text that was read just now comes next again."""
        self._at -= len(text)

    def read(self, wanted: Stops, most: int | None = None) -> Reading[tuple[str, str | None]]:
        """Text, and the stop after it or None where more text may follow.

        At the end of the answer the stop is END; the text before it may be a literal's beginning.
        `most`: whoever has got more text than this wants no stop any more.
        """
        while True:
            text, at = self._text, self._at
            end = len(text) if most is None else min(len(text), at + most + 1 + wanted.longest)
            sure = min(end, wanted.sure_length(text, at))
            found = wanted.search(text, at, end)
            if found is not None and found.start() < sure:
                self._at = found.end()
                return text[at : found.start()], found.group()
            if sure > at:
                self._at = sure
                return text[at:sure], None
            if self.is_over:
                self._at = len(text)
                return text[at:], END
            yield

    def take(self) -> Reading[str]:
        """The next character, END at the end."""
        while self._at == len(self._text):
            if self.is_over:
                return END
            yield
        self._at += 1
        return self._text[self._at - 1]

    def blanks(self) -> Reading[str]:
        """The blanks that come next."""
        parts, start = [], self.position
        while True:
            found = _BLANKS.match(self._text, self._at)
            assert found is not None  # it matches nothing too
            parts.append(found.group())
            self._at = found.end()
            if self._is_looking and self.position - start > MOST_BLANKS_AHEAD:
                raise Unfinished("too many blanks to look past")
            if self._at < len(self._text) or self.is_over:
                return "".join(parts)
            yield

    def optional(self, literal: str) -> Reading[bool]:
        """Reads the literal if it comes next."""
        while not self._text.startswith(literal, self._at):
            arrived = self._text[self._at : self._at + len(literal)]
            if self.is_over or not literal.startswith(arrived):
                return False
            yield
        self._at += len(literal)
        return True


def _beginnings(literal: str) -> str:
    """A pattern for every non-empty beginning of the literal."""
    pattern = ""
    for character in reversed(literal):
        pattern = re.escape(character) + (f"(?:{pattern})?" if pattern else "")
    return pattern
