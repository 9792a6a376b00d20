"""Whether every word of one regular tree is a word of another.

By partial derivatives (V. Antimirov, Theoretical Computer Science 155, 1996): what is left of a
tree after a character is a set of trees, of which there are finitely many.
"""

from collections.abc import Iterator

from toolcall.grammar.characters import Characters
from toolcall.grammar.regular import (
    EMPTY,
    Concat,
    Either,
    One,
    Regular,
    Repeat,
    concat,
    lengths,
    states,
)

MOST_STATES = 1000
"""States of both trees together: what one step may have to copy and compare."""
MOST_WORK = 4000
"""Pairs of beginnings that are compared, some 20 us each: patterns come from clients, and the
router answers others meanwhile. Two of the usual size take some hundreds."""


def is_within(narrow: Regular, wide: Regular) -> bool:
    """True when all words of `narrow` are words of `wide`; False also where that takes too long."""
    if states(narrow) + states(wide) > MOST_STATES:
        return False
    first = narrow, frozenset([wide])
    seen, left, work = {first}, [first], 0
    while left:
        one, others = left.pop()
        if _may_end(one) and not any(map(_may_end, others)):
            return False
        heads = [head for other in others for head in _heads(other)]
        for allowed, rest in _heads(one):
            work += 1 + len(heads)
            if work > MOST_WORK:
                return False
            for after in _after(allowed, heads):
                if not after:
                    return False  # every tree has a word, so this one goes on where no other does
                if (rest, after) not in seen:
                    seen.add((rest, after))
                    left.append((rest, after))
    return True


def _after(allowed: Characters, heads: list[tuple[Characters, Regular]]) -> set[frozenset[Regular]]:
    """What the heads leave after the characters, for each part that they do not tell apart."""
    parts: list[tuple[Characters, frozenset[Regular]]] = [(allowed, frozenset())]
    for taken, rest in heads:
        cut = [(part & taken, after | {rest}) for part, after in parts]
        cut += [(part - taken, after) for part, after in parts]
        parts = [(part, after) for part, after in cut if part]
    return {after for _, after in parts}


def _heads(tree: Regular) -> Iterator[tuple[Characters, Regular]]:
    """First characters of the tree's words, each set with what follows it."""
    match tree:
        case One(allowed):
            yield allowed, EMPTY
        case Either(options):
            for option in options:
                yield from _heads(option)
        case Concat(parts) if parts:
            for allowed, rest in _heads(parts[0]):
                yield allowed, concat(rest, *parts[1:])
            if _may_end(parts[0]):
                yield from _heads(concat(*parts[1:]))
        case Repeat(part, low, high) if high != 0:
            more = None if high is None else high - 1
            again = EMPTY if more == 0 else Repeat(part, max(low - 1, 0), more)
            for allowed, rest in _heads(part):
                yield allowed, concat(rest, again)


def _may_end(tree: Regular) -> bool:
    return lengths(tree)[0] == 0
