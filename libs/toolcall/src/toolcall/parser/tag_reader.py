"""Reads a call's tags strictly, and says where an answer leaves its format."""

from typing import NoReturn

from toolcall.errors import FaultKind
from toolcall.marks import Marks
from toolcall.parser.delivery import Delivery
from toolcall.parser.source import BLANKS, END, Reading, Source, Stops, Unfinished, stops
from toolcall.parser.tags import Tags

MOST_NAME_CHARACTERS = 256
"""Longer than any tool's name (64), Kimi's prefix and number, and generous blanks around it."""


class TagReader:
    """What the readers of calls share."""

    def __init__(self, source: Source, tags: Tags, marks: Marks, delivery: Delivery) -> None:
        self.source, self.tags, self.delivery = source, tags, delivery
        self.where = ""
        """The place in the call, for messages."""
        self._marks = marks

    def tag(self, wanted: Stops) -> Reading[str]:
        """One of the wanted literals, after blanks; anything else is refused."""
        yield from self.source.blanks()
        text, stop = yield from self.source.read(wanted)
        if stop == END:
            raise Unfinished(self.where)
        if text or stop is None or stop not in wanted.literals:
            self.source.unread(text + (stop or ""))
            found = self.spell((text or stop or "")[0])
            expected = " or ".join(map(self.spell, wanted.literals))
            self.refuse("malformed_call", f"expected {expected}, found {found!r}")
        return stop

    def expect(self, pieces: tuple[str, ...]) -> Reading[None]:
        """These pieces, with blanks between them or not."""
        for piece in pieces:
            yield from self.tag(stops(piece))

    def text_to(self, wanted: Stops, most: int | None = None) -> Reading[tuple[str, str]]:
        """The text up to one of the wanted literals, and that literal; marks are refused."""
        parts: list[str] = []
        while True:
            text, stop = yield from self.source.read(wanted, most)
            if stop == END:
                raise Unfinished(self.where)
            parts.append(text)
            if most is not None and sum(map(len, parts)) > most:
                beginning = "".join(parts)[:most].strip(BLANKS)
                self.refuse("undeclared_tool", f"not a tool's name: {beginning!r}")
            if stop in wanted.literals:
                return "".join(parts), stop
            if stop is not None:
                self.refuse("malformed_call", f"{self.spell(stop)} where text has to be")

    def spell(self, text: str) -> str:
        """The text with its marks as the tokens' text."""
        return self._marks.spell(text)

    def spell_in_value(self, mark: str) -> str:
        """A control token inside a value is its text, unless it is one of the format's tags."""
        if mark in self.tags.never_in_values:
            self.refuse("malformed_call", f"the control token {self.spell(mark)} in a value")
        return self.spell(mark)

    def refuse(self, kind: FaultKind, message: str) -> NoReturn:
        """Refuses the call at hand, saying where."""
        self.delivery.refuse(kind, f"{self.where}: {message}")
