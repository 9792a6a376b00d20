"""From tokens to text: incremental detokenising, marks for control tokens, and stop strings.

Invariant: the concatenated text of a request is the same for every way in which its tokens arrive
in chunks, and never holds a half character or any part of a stop string.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from tokenizers.decoders import DecodeStream

from toolcall.marks import Marks


class TextStream:
    """Turns one answer's tokens into text in which control tokens are marks (`toolcall.marks`).

    `visible` are the control tokens that come out as marks; all others leave no trace, as the end
    of the answer leaves none.
    """

    def __init__(self, tokenizer: Any, marks: Marks, visible: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._decoder = DecodeStream(skip_special_tokens=True)
        self._marks = marks
        self._visible = visible
        self._undecoded: list[int] = []
        self._length = 0
        self._lengths: list[int] = []

    def push(self, token_ids: Iterable[int]) -> str:
        """The text that these tokens complete."""
        pieces = []
        for token_id in token_ids:
            piece = self._step(token_id)
            self._length += len(piece)
            self._lengths.append(self._length)
            pieces.append(piece)
        return "".join(pieces)

    def flush(self) -> str:
        """What is left when the answer ended inside a character; its bytes are shown, not lost."""
        if not self._undecoded:
            return ""
        text: str = self._tokenizer.decode(self._undecoded, skip_special_tokens=True)
        self._undecoded.clear()
        # The old decoder still holds these bytes and would give them again.
        self._decoder = DecodeStream(skip_special_tokens=True)
        return text

    def tokens_before(self, length: int) -> int | None:
        """How many of the tokens make up the first `length` characters; None when one goes on."""
        if length == 0:
            return 0
        at = bisect_left(self._lengths, length)
        return at + 1 if at < len(self._lengths) and self._lengths[at] == length else None

    def _step(self, token_id: int) -> str:
        mark = self._marks.mark_of(token_id)
        if mark is not None:
            return self.flush() + (mark if token_id in self._visible else "")
        self._undecoded.append(token_id)
        piece: str | None = self._decoder.step(self._tokenizer, token_id)
        if piece is None:
            return ""
        self._undecoded.clear()
        return piece


class StopTexts:
    """Ends a text at the first stop string, wherever the pieces of it are cut."""

    def __init__(self, stop_texts: Sequence[str]) -> None:
        self._stop_texts = tuple(stop_texts)
        self._held = ""
        self.has_stopped = False

    def push(self, text: str) -> str:
        """The text that is surely before any stop string; nothing more after one was found."""
        if self.has_stopped:
            return ""
        self._held += text
        end = first_stop(self._held, self._stop_texts)
        if end is not None:
            self.has_stopped = True
            text, self._held = self._held[:end], ""
            return text
        cut = len(self._held) - held_back(self._held, self._stop_texts)
        text, self._held = self._held[:cut], self._held[cut:]
        return text

    def ends_in(self, text: str) -> bool:
        """Whether a stop string would end this text, if it came next."""
        return first_stop(self._held + text, self._stop_texts) is not None

    def flush(self) -> str:
        """What was held back, when the text ends without becoming a stop string."""
        text, self._held = self._held, ""
        return text


def first_stop(text: str, stop_texts: Sequence[str]) -> int | None:
    """Where the earliest stop string begins, None when there is none."""
    found = [at for at in (text.find(stop) for stop in stop_texts) if at >= 0]
    return min(found, default=None)


def held_back(text: str, stop_texts: Sequence[str]) -> int:
    """How many last characters may be the beginning of a stop string."""
    most = max((len(stop) for stop in stop_texts), default=0) - 1
    for length in range(min(most, len(text)), 0, -1):
        if any(stop.startswith(text[-length:]) for stop in stop_texts):
            return length
    return 0
