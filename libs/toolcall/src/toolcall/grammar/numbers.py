"""Numbers within bounds, digit by digit, as regular trees.

Bounded digits keep a model from writing one number for ever: at most 40 before the point, 20 after
it and two in an exponent. A number with bounds is written without an exponent, an integer without
a fraction, and zero without a minus unless negative numbers are allowed too.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import MAX_PREC, ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Literal, TypeVar

from toolcall.grammar.characters import DIGITS, one_of, span
from toolcall.grammar.regular import EMPTY, One, Regular, Repeat, concat, either, optional, text
from toolcall.schema.nodes import Number

MOST_DIGITS = 40
LEAST_UNWRITTEN = 10**MOST_DIGITS
MOST_DECIMALS = 20
MOST_BOUND_DECIMALS = 60
"""More decimals of a bound are left to the guard: each is a level of the expression, and the least
float has a thousand."""

_DIGIT, _FIRST_DIGIT, _MINUS, _POINT = One(DIGITS), One(span("1", "9")), text("-"), text(".")
_TAIL = Repeat(_DIGIT, 0, MOST_DECIMALS)
_ZERO_TAIL = Repeat(text("0"), 0, MOST_DECIMALS)
_POSITIVE_TAIL = concat(_ZERO_TAIL, _FIRST_DIGIT, _TAIL)
_FRACTION = optional(concat(_POINT, Repeat(_DIGIT, 1, MOST_DECIMALS)))
_NATURAL = either(text("0"), concat(_FIRST_DIGIT, Repeat(_DIGIT, 0, MOST_DIGITS - 1)))
_EXPONENT = concat(One(one_of("eE")), optional(One(one_of("+-"))), Repeat(_DIGIT, 1, 2))
INTEGER = concat(optional(_MINUS), _NATURAL)
NUMBER = concat(INTEGER, _FRACTION, optional(_EXPONENT))

Bound = TypeVar("Bound", int, Decimal)


def integers(low: int | None, high: int | None) -> Regular | None:
    """Integers of this range, both ends included; None when there are none."""
    # As far out as nothing is written; a level of the tree for each digit would be too deep.
    low = None if low is not None and low <= -LEAST_UNWRITTEN else low
    high = None if high is not None and high >= LEAST_UNWRITTEN else high
    if low is None and high is None:
        return INTEGER
    options = []
    if low is None or low < 0:
        options.append(_minus(_naturals(max(0, -(high or 0)), _negated(low))))
    if high is None or high >= 0:
        options.append(_naturals(max(0, low or 0), high))
    return _any_of(options)


def numbers(node: Number) -> Regular | None:
    """Decimal numbers within the bounds of the node; None when there are none."""
    low, high = node.minimum, node.maximum
    if low is None and high is None:
        return NUMBER
    zero = _Edge(Decimal(0), is_exclusive=False)
    lowest = None if low is None else _edge(low, ROUND_FLOOR, node.is_minimum_exclusive)
    highest = None if high is None else _edge(high, ROUND_CEILING, node.is_maximum_exclusive)
    options = []
    if lowest is None or lowest.value < 0:
        nearest = zero if highest is None or highest.value > 0 else highest.mirrored()
        options.append(_minus(_decimals(nearest, lowest and lowest.mirrored())))
    if highest is None or highest.value >= 0:
        nearest = zero if lowest is None or lowest.value < 0 else lowest
        options.append(_decimals(nearest, highest))
    return _any_of(options)


@dataclass(frozen=True)
class _Edge:
    value: Decimal
    is_exclusive: bool

    def mirrored(self) -> "_Edge":
        return _Edge(abs(self.value), self.is_exclusive)

    def split(self) -> tuple[str, str]:
        """The digits before and after the point, without trailing zeros."""
        digits, _, decimals = f"{self.value:f}".partition(".")
        return digits, decimals.rstrip("0")


def is_kept(bound: Decimal) -> bool:
    """Whether a grammar keeps this bound to its last decimal."""
    return _decimals_of(bound) <= MOST_BOUND_DECIMALS


def _edge(bound: Decimal, outwards: str, is_exclusive: bool) -> _Edge:
    """The bound; one with too many decimals is moved outwards, where nothing new is included."""
    if is_kept(bound):
        return _Edge(bound, is_exclusive)
    with localcontext(prec=MAX_PREC):
        moved = bound.quantize(Decimal(1).scaleb(-MOST_BOUND_DECIMALS), outwards)
        return _Edge(moved + 0, is_exclusive=True)  # + 0: never a negative zero


def _decimals_of(bound: Decimal) -> int:
    exponent = bound.as_tuple().exponent
    assert isinstance(exponent, int), "bounds are finite"
    return max(0, -exponent)


def _naturals(low: int, high: int | None) -> Regular | None:
    """Natural numbers of this range."""
    first = str(low)
    last = "9" * max(MOST_DIGITS, len(first)) if high is None else str(high)
    if int(last) < low:
        return None
    if len(first) == len(last):
        return _same_length(first, last)
    options: list[Regular | None] = [_same_length(first, "9" * len(first))]
    if len(last) - len(first) > 1:
        options.append(concat(_FIRST_DIGIT, Repeat(_DIGIT, len(first), len(last) - 2)))
    options.append(_same_length("1" + "0" * (len(last) - 1), last))
    return _any_of(options)


def _same_length(first: str, last: str) -> Regular:
    """Strings of digits from `first` to `last`, all of their length."""
    count = len(first)
    if count == 0 or (first == "0" * count and last == "9" * count):
        return _digits("0", "9", count)
    if first[0] == last[0]:
        return concat(text(first[0]), _same_length(first[1:], last[1:]))
    low, high = int(first[0]), int(last[0])
    options: list[Regular] = []
    if first[1:].strip("0"):
        options.append(concat(text(first[0]), _same_length(first[1:], "9" * (count - 1))))
        low += 1
    if last[1:].strip("9"):
        options.append(concat(text(last[0]), _same_length("0" * (count - 1), last[1:])))
        high -= 1
    if low <= high:
        options.append(concat(_digits(str(low), str(high), 1), _digits("0", "9", count - 1)))
    return either(*options)


def _decimals(low: _Edge, high: _Edge | None) -> Regular | None:
    """Decimals of this range, which begins at zero or above, without a sign."""
    if high is not None and high.value < low.value:
        return None
    low_digits, low_tail = low.split()
    first = int(low_digits)
    if high is None:
        lowest = _fraction(_tail(low_tail, None, low.is_exclusive, False))
        above = _join(_naturals(first + 1, None), _FRACTION)
        return _any_of([_join(text(low_digits), lowest), above])
    high_digits, high_tail = high.split()
    last = int(high_digits)
    if first == last:
        both = _fraction(_tail(low_tail, high_tail, low.is_exclusive, high.is_exclusive))
        return _join(text(low_digits), both)
    lowest = _fraction(_tail(low_tail, None, low.is_exclusive, False))
    highest = _fraction(_tail(None, high_tail, False, high.is_exclusive))
    between = _naturals(first + 1, last - 1)
    return _any_of(
        [
            _join(text(low_digits), lowest),
            _join(between, _FRACTION),
            _join(text(high_digits), highest),
        ]
    )


@dataclass(frozen=True)
class _Tail:
    """The decimals that may follow, and whether none need to."""

    decimals: Regular | None
    may_end: bool


def _tail(
    low: str | None, high: str | None, is_low_exclusive: bool, is_high_exclusive: bool
) -> _Tail:
    """The decimals between two.

    A bound is what is left of its decimals, None once the number is safely inside it. A bound that
    is not used up ends in a digit other than zero.
    """
    if low == "" and not is_low_exclusive:
        low = None
    if low is None and high is None:
        return _Tail(_TAIL, may_end=True)
    if high == "":
        is_possible = low is None and not is_high_exclusive
        return _Tail(_ZERO_TAIL if is_possible else None, may_end=is_possible)
    if low == "" and high is None:
        return _Tail(_POSITIVE_TAIL, may_end=False)
    groups: dict[tuple[str | None, str | None], str] = {}
    for digit in "0123456789":
        rests = _rest(low, digit, inside=">"), _rest(high, digit, inside="<")
        if "outside" not in rests:
            groups[rests] = groups.get(rests, "") + digit
    options: list[Regular | None] = []
    for rests, digits in groups.items():
        after = _tail(*rests, is_low_exclusive, is_high_exclusive)
        options.append(_join(_digits(digits[0], digits[-1], 1), _ended(after)))
    return _Tail(_any_of(options), may_end=low is None)


def _rest(bound: str | None, digit: str, inside: Literal["<", ">"]) -> str | None:
    """What is left of a bound after this digit; "outside" when the digit breaks it."""
    if bound is None:
        return None
    own = bound[:1] or "0"
    if digit == own:
        return bound[1:]
    return None if (digit < own) == (inside == "<") else "outside"


def _fraction(tail: _Tail) -> Regular | None:
    """A point and decimals, at least one of them."""
    decimals = tail.decimals
    if isinstance(decimals, Repeat) and decimals.low == 0:
        decimals = Repeat(decimals.part, 1, decimals.high)
    return _ended(_Tail(_join(_POINT, decimals), tail.may_end))


def _ended(tail: _Tail) -> Regular | None:
    if tail.decimals is None:
        return EMPTY if tail.may_end else None
    return optional(tail.decimals) if tail.may_end else tail.decimals


def _join(first: Regular | None, second: Regular | None) -> Regular | None:
    return None if first is None or second is None else concat(first, second)


def _negated(bound: Bound | None) -> Bound | None:
    return None if bound is None else -bound


def _minus(natural: Regular | None) -> Regular | None:
    return _join(_MINUS, natural)


def _digits(low: str, high: str, count: int) -> Regular:
    one = One(span(low, high))
    return EMPTY if count == 0 else one if count == 1 else Repeat(one, count, count)


def _any_of(options: Iterable[Regular | None]) -> Regular | None:
    found = [option for option in options if option is not None]
    return either(*found) if found else None
