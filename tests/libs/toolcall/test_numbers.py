"""Numbers within bounds: what the trees accept, against Python's comparison of every candidate."""

import random
from decimal import Decimal
from functools import lru_cache

import pytest
import xgrammar
from xgrammar.testing import _is_grammar_accept_string as accepts_text

from tests.libs.toolcall.words import has_word
from toolcall.grammar.ebnf import Rules
from toolcall.grammar.multiples import multiples
from toolcall.grammar.numbers import INTEGER, NUMBER, integers, numbers
from toolcall.schema.nodes import Integer, Number

SMALLEST = Decimal("2.2250738585072014e-308")
NOT_NUMBERS = ["", "-", "+1", "01", "00", "-01", "1.", ".5", "1e", "0x1", "1_000", " 1", "NaN"]


def test_an_integer_is_written_without_fraction_exponent_or_leading_zero():
    good = ["0", "7", "-7", "-0", "123456789012345678901234567890", "9" * 40]
    bad = [*NOT_NUMBERS, "5.0", "1e3", "9" * 41]

    assert all(has_word(INTEGER, text) for text in good)
    assert not any(has_word(INTEGER, text) for text in bad)


def test_a_number_may_have_a_fraction_and_an_exponent():
    good = ["0", "-2.5", "1.0", "1e3", "1E+10", "-0.5e-9", "3.14159265358979"]
    bad = [*NOT_NUMBERS, "1e999", "1." + "3" * 21, "Infinity"]

    assert all(has_word(NUMBER, text) for text in good)
    assert not any(has_word(NUMBER, text) for text in bad)


@pytest.mark.parametrize("seed", range(4))
def test_integers_of_a_range_are_exactly_those_between_its_bounds(seed):
    pick = random.Random(seed)
    for _ in range(150):
        low, high = (
            pick.choice([None, pick.randint(-1200, 1200), pick.randint(-12, 12)]) for _ in "ab"
        )
        tree = integers(low, high)
        near = [edge + step for edge in (low or 0, high or 0) for step in (-1, 0, 1)]

        for value in [*near, *(pick.randint(-1500, 1500) for _ in range(20))]:
            is_inside = (low is None or value >= low) and (high is None or value <= high)
            assert (tree is not None and has_word(tree, str(value))) == is_inside, (low, high)


@pytest.mark.parametrize(
    "bound", [10**40, int(1e308), 10**4000 + 7], ids=["1e40", "1e308", "1e4000"]
)
def test_a_bound_beyond_all_digits_that_are_written_is_none(bound):
    assert integers(0, bound) == integers(0, None)
    assert integers(-bound, 5) == integers(None, 5)
    assert integers(-bound, bound) == INTEGER


@pytest.mark.parametrize("bound", [SMALLEST, Decimal("5e-324"), Decimal("1e-200")])
def test_a_bound_with_more_decimals_than_are_written_excludes_zero(bound):
    above = numbers(Number(minimum=bound, maximum=Decimal("1e308")))
    below = numbers(Number(maximum=-bound))
    assert above is not None
    assert below is not None

    for text in ("1", "0." + "0" * 19 + "1", "12.5", "9" * 40):
        assert has_word(above, text)
        assert has_word(below, f"-{text}")
    for text in ("0", "0.0", "-0", "-1"):
        assert not has_word(above, text)
    for text in ("0", "0.0", "-0", "-0.0", "1"):
        assert not has_word(below, text)


@pytest.mark.parametrize("seed", range(4))
def test_decimals_of_a_range_are_exactly_those_between_its_bounds(seed):
    pick = random.Random(seed)
    for _ in range(150):
        node = Number(_bound(pick), _bound(pick), pick.random() < 0.4, pick.random() < 0.4)
        tree = numbers(node)
        if node.minimum is None and node.maximum is None:
            continue

        for value in _candidates(pick, node):
            for text in _spellings(value):
                assert (tree is not None and has_word(tree, text)) == _is_inside(node, value), (
                    node,
                    text,
                )
        assert tree is None or not any(has_word(tree, text) for text in [*NOT_NUMBERS, "1e3"])


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 8, 10, 12, 25, 30, 60, 100, 125, 600])
@pytest.mark.parametrize("bounds", [(None, None), (0, None), (1, None), (None, -1), (-50, 900)])
def test_multiples_of_a_step_are_accepted_and_nothing_else(step, bounds):
    low, high = bounds
    pick = random.Random(step)
    grammar = _grammar_of(Integer(low, high, step))
    if grammar is None:
        assert bounds == (-50, 900)
        assert 950 // step >= 200
        return

    for value in [0, step, -step, *(pick.randint(-2000, 2000) for _ in range(20))]:
        is_inside = (low is None or value >= low) and (high is None or value <= high)
        assert accepts_text(grammar, str(value)) == (is_inside and value % step == 0), value
    assert not any(accepts_text(grammar, text) for text in ["", "-", "-0", "00", f"0{step}"])


def test_multiples_that_would_cost_too_much_are_left_out():
    assert multiples(Rules(), Integer(None, None, 61)) is None
    assert multiples(Rules(), Integer(17, None, 5)) is None
    assert multiples(Rules(), Integer(0, 1_000_000, 3)) is None


@lru_cache
def _grammar_of(node):
    rules = Rules()
    expression = multiples(rules, node)
    return expression and xgrammar.Grammar.from_ebnf(rules.text(expression))


def _bound(pick):
    scale = pick.choice([1, 1, 10, 100, 1000])
    return pick.choice([None, Decimal(0), Decimal(pick.randint(-30 * scale, 30 * scale)) / scale])


def _candidates(pick, node):
    values = [Decimal(pick.randint(-3000, 3000)) / 100 for _ in range(15)]
    for bound in (node.minimum, node.maximum):
        if bound is not None:
            values += [bound + Decimal(step) for step in ("0", "0.001", "-0.001", "0.1", "1", "-1")]
    return values


def _spellings(value):
    text = f"{value:f}"
    spellings = {text, text + ("0" if "." in text else ".0"), f"{value.normalize():f}"}
    return [each for each in spellings if not (each.startswith("-") and value == 0)]


def _is_inside(node, value):
    low, high = node.minimum, node.maximum
    is_above = low is None or value > low or (value == low and not node.is_minimum_exclusive)
    is_below = high is None or value < high or (value == high and not node.is_maximum_exclusive)
    return is_above and is_below
