"""From tokens to text: incremental detokenising and stop strings.

Invariant: the concatenated deltas of a request are the same text for every way in which its tokens
arrive in chunks, and never hold a half character or any part of a stop string.
"""

from collections.abc import Sequence
from typing import Any

from tokenizers.decoders import DecodeStream

from router.domain import FinishReason, TextDelta, Tokens


class TextStream:
    """Turns one request's tokens into text deltas."""

    def __init__(self, tokenizer: Any, stop_texts: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._decoder = DecodeStream(skip_special_tokens=True)
        self._stop_texts = tuple(stop_texts)
        self._held = ""
        self._undecoded: list[int] = []
        self.has_stopped = False

    def push(self, tokens: Tokens) -> TextDelta:
        """The text that these tokens complete; after a stop string nothing more comes out."""
        for token_id in tokens.token_ids:
            self._undecoded.append(token_id)
            piece = self._decoder.step(self._tokenizer, token_id)
            if piece is not None:
                self._undecoded.clear()
                self._held += piece
        finish = tokens.finish_reason
        if finish is not None:
            self._held += self._flush_undecoded()
        return self._release(finish)

    def _flush_undecoded(self) -> str:
        """What is left when a limit cut a character in two; its bytes are shown, not dropped."""
        if not self._undecoded:
            return ""
        text: str = self._tokenizer.decode(self._undecoded, skip_special_tokens=True)
        return text

    def _release(self, finish: FinishReason | None) -> TextDelta:
        end = first_stop(self._held, self._stop_texts)
        if end is not None:
            self.has_stopped = True
            text, self._held = self._held[:end], ""
            return TextDelta(text, "stop")
        keep = 0 if finish is not None else held_back(self._held, self._stop_texts)
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        return TextDelta(text, finish)


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
