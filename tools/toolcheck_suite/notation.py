"""Model output as the cases write it: `«/think»` is the control token `</think>`, all else is text.

(`«=x»` is the control token `x` itself, for the few that are not written in angle brackets.)

So the same characters without guillemets (`</think>`) are ordinary text tokens, which models also
write. `¦` stands before the first character that the grammar must refuse.
"""

from collections.abc import Iterator
from dataclasses import dataclass

OPEN, CLOSE, REFUSED = "«", "»", "¦"


@dataclass(frozen=True)
class Piece:
    """A run of text, or one control token with its full spelling."""

    text: str
    is_control: bool = False


@dataclass(frozen=True)
class Output:
    """Everything that the model writes, and where the grammar must stop it (None: nowhere).

    `refused_at` counts characters of the pieces' texts; at the end of the output it means that the
    answer may not end there.
    """

    pieces: tuple[Piece, ...]
    refused_at: int | None = None

    @property
    def text(self) -> str:
        """The wire text with control tokens spelt out."""
        return "".join(piece.text for piece in self.pieces)


class BadNotation(ValueError):
    """A case is written wrongly."""


def parse(written: str) -> Output:
    """An output from its notation. Raises BadNotation."""
    pieces: list[Piece] = []
    refused_at = None
    length = 0
    for part in _parts(written):
        if part == REFUSED:
            if refused_at is not None:
                raise BadNotation(f"expected at most one {REFUSED}: {written!r}")
            refused_at = length
            continue
        is_control = part.startswith(OPEN)
        text = _token(part[1:-1]) if is_control else part
        length += len(text)
        pieces.append(Piece(text, is_control))
    return Output(_merged(pieces), refused_at)


def _token(written: str) -> str:
    return written[1:] if written.startswith("=") else f"<{written}>"


def _parts(written: str) -> Iterator[str]:
    rest = written
    while rest:
        at = min((i for i in map(rest.find, (OPEN, REFUSED)) if i >= 0), default=len(rest))
        if at:
            yield rest[:at]
            rest = rest[at:]
        elif rest.startswith(REFUSED):
            yield REFUSED
            rest = rest[1:]
        else:
            end = rest.find(CLOSE)
            if end < 0:
                raise BadNotation(f"expected {CLOSE} after {OPEN}: {written!r}")
            yield rest[: end + 1]
            rest = rest[end + 1 :]


def _merged(pieces: list[Piece]) -> tuple[Piece, ...]:
    """Text around a ¦ is one run: where the grammar stops must not change how it is tokenised."""
    merged: list[Piece] = []
    for piece in pieces:
        if merged and not piece.is_control and not merged[-1].is_control:
            merged[-1] = Piece(merged[-1].text + piece.text)
        else:
            merged.append(piece)
    return tuple(merged)
