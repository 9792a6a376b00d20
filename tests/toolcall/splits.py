"""Every way to cut a sequence that the suite tries: an answer must not depend on it."""

import itertools
from collections.abc import Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Cuts = tuple[int, ...]

PAIRS_UP_TO = 25
"""Of all pairs of cuts there are n²/2: 300 for so many tokens."""
RUNS = (2, 3, 4, 5, 6, 7)
"""Tokens a step when several are drafted at once."""


def every_cut(count: int, pairs_up_to: int = PAIRS_UP_TO) -> Iterator[Cuts]:
    """In one piece, one by one, every single cut, runs of 2 to 7, all pairs when it is short."""
    yield ()
    yield tuple(range(1, count))
    yield from ((cut,) for cut in range(1, count))
    yield from (tuple(range(run, count, run)) for run in RUNS if run < count)
    if count <= pairs_up_to:
        yield from ((a, b) for a in range(1, count) for b in range(a + 1, count))


def cut_at(items: Sequence[Item], cuts: Cuts) -> list[Sequence[Item]]:
    """The pieces between the cuts; none is empty unless there are no items."""
    edges = [0, *cuts, len(items)]
    return [items[start:end] for start, end in itertools.pairwise(edges)]


def named(count: int, name: str) -> Cuts:
    """The cuts of a split by its name in a marker: whole, tokens, late, runs-N, cut-N."""
    match name.split("-"):
        case ["whole"]:
            return ()
        case ["tokens" | "late"]:
            return tuple(range(1, count))
        case ["runs", run]:
            return tuple(range(int(run), count, int(run)))
        case ["cut", at]:
            return (int(at),) if 0 < int(at) < count else ()
    raise ValueError(f"expected whole, tokens, late, runs-N or cut-N: {name}")
