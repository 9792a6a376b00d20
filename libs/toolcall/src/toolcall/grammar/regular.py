"""Regular languages as small trees: client patterns, formats, lengths, numbers, other names.

A tree says nothing of how it is written; `automata.py` turns it into rules.
"""

from dataclasses import dataclass, replace

from toolcall.grammar.characters import EVERY, Characters, one_of

MOST_REPEATS = 1000


@dataclass(frozen=True)
class One:
    """One character of a set that has some."""

    allowed: Characters


@dataclass(frozen=True)
class Concat:
    """The parts after each other."""

    parts: tuple["Regular", ...]


@dataclass(frozen=True)
class Either:
    """Any of the options; at least one."""

    options: tuple["Regular", ...]


@dataclass(frozen=True)
class Repeat:
    """The part from `low` to `high` times; without end when `high` is None."""

    part: "Regular"
    low: int
    high: int | None


Regular = One | Concat | Either | Repeat
EMPTY = Concat(())
ANY = Repeat(One(EVERY), 0, None)


def text(characters: str) -> Regular:
    """Exactly this text."""
    return concat(*(One(one_of(c)) for c in characters))


def concat(*parts: Regular) -> Regular:
    """The parts after each other."""
    flat: list[Regular] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, Concat) else (part,))
    return flat[0] if len(flat) == 1 else Concat(tuple(flat))


def either(*options: Regular) -> Regular:
    """Any of the options; at least one."""
    return options[0] if len(options) == 1 else Either(options)


def optional(part: Regular) -> Regular:
    """The part or nothing."""
    return Repeat(part, 0, 1)


def lengths(tree: Regular) -> tuple[int, int | None]:
    """The fewest and the most characters of a word; None for no limit."""
    match tree:
        case One():
            return 1, 1
        case Concat(parts):
            bounds = [lengths(part) for part in parts]
            most = [high for _, high in bounds]
            return sum(low for low, _ in bounds), None if None in most else sum(map(_int, most))
        case Either(options):
            bounds = [lengths(option) for option in options]
            most = [high for _, high in bounds]
            return min(low for low, _ in bounds), None if None in most else max(map(_int, most))
        case Repeat(part, low, high):
            shortest, longest = lengths(part)
            if longest == 0 or high == 0:
                return shortest * low, 0
            is_endless = longest is None or high is None
            return shortest * low, None if is_endless else _int(longest) * _int(high)


def cost_ms(tree: Regular) -> float:
    """About how long xgrammar takes for the tree's token masks.

    Measured with a vocabulary of 49k tokens: a state that takes any character costs 7 ms, one that
    takes digits 0.01 ms, because every token that begins with such a character is walked through.
    """
    match tree:
        case One(allowed):
            letters = (allowed.overlap("a", "z") + 0.15 * allowed.overlap("A", "Z")) / 26
            beyond_ascii = 0.5 if allowed.ranges[-1][1] > 0x7F else 0.0
            after_blank = 2.5 * letters if " " in allowed else 0.0
            return 2.3 * letters**2 + after_blank + beyond_ascii + 0.01
        case Concat(parts) | Either(parts):
            return sum(map(cost_ms, parts))
        case Repeat(part, low, high):
            return cost_ms(part) * max(1, low if high is None else high)


def states(tree: Regular) -> int:
    """About how many states the automaton has."""
    match tree:
        case One():
            return 1
        case Concat(parts) | Either(parts):
            return sum(map(states, parts))
        case Repeat(part, low, high):
            return states(part) * max(1, low if high is None else high)


def relaxed(tree: Regular, most_ms: float) -> Regular:
    """A tree that accepts more: counted repeats that cost too much count no further than 1.

    Repeats beyond MOST_REPEATS are relaxed in any case.
    """
    match tree:
        case Concat(parts):
            return Concat(tuple(relaxed(part, most_ms) for part in parts))
        case Either(options):
            return Either(tuple(relaxed(option, most_ms) for option in options))
        case Repeat(part, low, high):
            part = relaxed(part, most_ms)
            copies = low if high is None else high
            if copies > 1 and (copies > MOST_REPEATS or cost_ms(part) * copies > most_ms):
                return Repeat(part, min(low, 1), None)
            return Repeat(part, low, high)
        case _:
            return tree


def endless(tree: Regular) -> Regular | None:
    """The tree with no end to the repeat that its words end in; None where they end otherwise.

    Words of the given tree are exactly those of the result that are no longer than its longest.
    """
    parts = list(tree.parts) if isinstance(tree, Concat) else [tree]
    last = parts.pop() if parts else None
    if not isinstance(last, Repeat) or lengths(last.part) != (1, 1):
        return None
    if any(lengths(part)[0] != lengths(part)[1] for part in parts):
        return None
    return concat(*parts, replace(last, high=None))


def fitted(tree: Regular, low: int, high: int | None) -> Regular | None:
    """The words of the tree that have these lengths; None where this is not simple to say."""
    shortest, longest = lengths(tree)
    if low <= shortest and (high is None or (longest is not None and longest <= high)):
        return tree
    parts = list(tree.parts) if isinstance(tree, Concat) else [tree]
    elastic = [at for at, part in enumerate(parts) if lengths(part)[0] != lengths(part)[1]]
    if len(elastic) != 1:
        return None
    part = parts[elastic[0]]
    if not isinstance(part, Repeat) or lengths(part.part) != (1, 1):
        return None
    others = shortest - part.low
    least = max(part.low, low - others)
    most = part.high
    if high is not None:
        most = high - others if most is None else min(most, high - others)
    if most is not None and least > most:
        return None
    parts[elastic[0]] = replace(part, low=least, high=most)
    return concat(*parts)


def without(tree: Regular, taboo: Characters) -> Regular | None:
    """The tree without some characters; None when every word needs one of them."""
    match tree:
        case One(allowed):
            left = allowed - taboo
            return One(left) if left else None
        case Concat(parts):
            kept = [without(part, taboo) for part in parts]
            return None if None in kept else Concat(tuple(part for part in kept if part))
        case Either(options):
            found = tuple(each for option in options if (each := without(option, taboo)))
            return Either(found) if found else None
        case Repeat(part, low, high):
            inner = without(part, taboo)
            if inner is None:
                return EMPTY if low == 0 else None
            return Repeat(inner, low, high)


def not_holding(tree: Regular, literal: str) -> Regular | None:
    """The tree without words that hold the literal; None when none can be said to be left.

    A word that lacks one of the literal's characters does not hold it. So the tree stays whole
    where it lacks one itself; else its words lack one of the first two.
    """
    if not all(_allows(tree, character) for character in set(literal)):
        return tree
    found = [each for character in literal[:2] if (each := without(tree, one_of(character)))]
    return either(*found) if found else None


def _allows(tree: Regular, character: str) -> bool:
    match tree:
        case One(allowed):
            return character in allowed
        case Concat(parts) | Either(parts):
            return any(_allows(part, character) for part in parts)
        case Repeat(part):
            return _allows(part, character)


def without_empty(tree: Regular) -> Regular | None:
    """The words of the tree that are not empty; None when there are none."""
    if lengths(tree)[0] > 0:
        return tree
    match tree:
        case Either(options):
            found = [each for option in options if (each := without_empty(option))]
            return either(*found) if found else None
        case Repeat(part, _, high):
            inner = without_empty(part)
            # The part may be empty as often as it likes, so fewer of it are enough.
            return None if inner is None or high == 0 else Repeat(inner, 1, high)
        case Concat(parts):
            # All parts may be empty: the first that is not, and what follows.
            found = []
            for at, part in enumerate(parts):
                inner = without_empty(part)
                if inner is not None:
                    found.append(concat(inner, *parts[at + 1 :]))
            return either(*found) if found else None
        case _:
            return tree


def _int(value: int | None) -> int:
    assert value is not None
    return value
