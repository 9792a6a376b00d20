"""Sets of characters, as ranges of code points.

Half surrogates are no characters: their three bytes decode to three replacement characters.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

LAST = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)


@dataclass(frozen=True)
class Characters:
    """A set of characters as sorted, separate ranges of code points, both ends included."""

    ranges: tuple[tuple[int, int], ...]

    def __contains__(self, character: str) -> bool:
        code = ord(character)
        return any(first <= code <= last for first, last in self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __or__(self, other: "Characters") -> "Characters":
        return characters((*self.ranges, *other.ranges))

    def __sub__(self, other: "Characters") -> "Characters":
        return (self.complement() | other).complement()

    def __and__(self, other: "Characters") -> "Characters":
        return (self.complement() | other.complement()).complement()

    def complement(self) -> "Characters":
        """All characters that are not in the set."""
        gaps, start = [], 0
        for first, last in sorted((*self.ranges, SURROGATES)):
            if first > start:
                gaps.append((start, first - 1))
            start = last + 1
        if start <= LAST:
            gaps.append((start, LAST))
        return Characters(tuple(gaps))

    def overlap(self, first: str, last: str) -> int:
        """How many characters of this range are in the set."""
        low, high = ord(first), ord(last)
        return sum(max(0, min(high, b) - max(low, a) + 1) for a, b in self.ranges)

    def only(self) -> str | None:
        """The character of a set that has just one."""
        (first, last), *more = self.ranges or ((0, 1),)
        return chr(first) if first == last and not more else None


def characters(ranges: Iterable[tuple[int, int]]) -> Characters:
    """The set of these ranges, which may overlap."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(part for each in ranges for part in _without_surrogates(*each)):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return Characters(tuple(merged))


def _without_surrogates(first: int, last: int) -> Iterator[tuple[int, int]]:
    below, above = min(last, SURROGATES[0] - 1), max(first, SURROGATES[1] + 1)
    if first <= below:
        yield first, below
    if above <= last:
        yield above, last


def one_of(text: str) -> Characters:
    """The set of the characters of this text."""
    return characters((ord(c), ord(c)) for c in text)


def span(first: str, last: str) -> Characters:
    """The set of the characters from `first` to `last`."""
    return Characters(((ord(first), ord(last)),))


EVERY = Characters(()).complement()
DIGITS = span("0", "9")
"""0 to 9, not the digits of other scripts."""
