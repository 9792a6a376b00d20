"""Reasoning and content: text whose blanks are markup where a tag or a call stands beside them."""

from collections.abc import Callable

from toolcall.parser.source import BLANKS

Emit = Callable[[str], None]


class Prose:
    """Text whose trailing blanks wait until it is known what follows them.

    Blanks beside a call are markup; elsewhere they belong to the text. Of the blanks at the very
    start, those that the template writes there (`lead`) are not part of it either.
    """

    def __init__(self, emit: Emit, lead: str = "") -> None:
        self._emit, self._lead = emit, lead
        self._blanks: list[str] = []
        self._is_begun = self._is_after_call = False

    @property
    def held(self) -> int:
        """The number of characters that wait."""
        return sum(map(len, self._blanks))

    @property
    def waiting(self) -> str:
        """The blanks that wait, as they will read if text follows them."""
        self._blanks = ["".join(self._blanks)]  # joined once, however often it is asked for
        return self._blanks[0] if self._is_begun else self._without_lead(self._blanks[0])

    def write(self, text: str) -> None:
        """More text."""
        body = text.rstrip(BLANKS)
        if body:
            self._release(body)
            self._is_after_call = False
        if len(body) < len(text):
            self._blanks.append(text[len(body) :])

    def interrupt(self) -> None:
        """A call stands here."""
        self._blanks.clear()
        self._is_begun = self._is_after_call = True

    def end(self, padding: str = "") -> None:
        """No more text; `padding` is what the template writes after it."""
        if self._is_after_call:
            self._blanks.clear()
        blanks = "".join(self._blanks)
        self._blanks = [blanks.removesuffix(padding)]
        self._release("")

    def _release(self, body: str) -> None:
        text = "".join([*self._blanks, body])
        self._blanks.clear()
        if not self._is_begun:
            text = self._without_lead(text)
            self._is_begun = True
        if text:
            self._emit(text)

    def _without_lead(self, text: str) -> str:
        return text[_shared_beginning(text, self._lead) :]


def _shared_beginning(text: str, other: str) -> int:
    length = 0
    while text[length : length + 1] and text[length : length + 1] == other[length : length + 1]:
        length += 1
    return length
