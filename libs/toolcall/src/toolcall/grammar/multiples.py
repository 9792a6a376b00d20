"""Integers that are multiples of a step, where that is affordable: few of them, or no tight range.

Three ways, the cheapest first: all multiples of a short range, the last digits where the step
divides a power of ten, and an automaton over the remainders for other small steps.
"""

from toolcall.grammar.automata import automaton
from toolcall.grammar.characters import DIGITS, span
from toolcall.grammar.ebnf import NOTHING, Rules, literal, sequence
from toolcall.grammar.numbers import MOST_DIGITS
from toolcall.grammar.regular import One, Regular, Repeat, concat, either, text
from toolcall.schema.nodes import Integer

MOST_LISTED = 200
"""Multiples written out one by one; xgrammar takes about 75 us for each."""
MOST_REMAINDERS = 60
"""Rules of the automaton over remainders, each with up to ten options."""


def multiples(rules: Rules, node: Integer) -> str | None:
    """An expression for the multiples in the node's range; None where it would cost too much."""
    step, low, high = node.multiple_of, node.minimum, node.maximum
    assert step is not None
    if low is not None and high is not None:
        first = -(-low // step) * step
        if (high - first) // step < MOST_LISTED:
            return rules.choice(literal(str(each)) for each in range(first, high + 1, step))
    is_below_zero = low is None
    is_above_zero = high is None
    if low is not None and not -step < low <= step:
        return None
    if high is not None and not -step <= high < step:
        return None
    positive = _positive(rules, step)
    if positive is None:
        return None
    options = []
    if (low is None or low <= 0) and (high is None or high >= 0):
        options.append(literal("0"))
    if is_above_zero:
        options.append(positive)
    if is_below_zero:
        options.append(sequence(literal("-"), positive))
    return rules.choice(options) if options else None


def _positive(rules: Rules, step: int) -> str | None:
    """The multiples above zero."""
    zeros = len(str(step)) - len(str(step).rstrip("0"))
    step //= 10**zeros
    for places in range(4):
        if 10**places % step == 0 and 10**places // step <= MOST_LISTED:
            tree = concat(_by_last_digits(step, places), text("0" * zeros))
            return automaton(rules, tree, NOTHING)
    if step > MOST_REMAINDERS:
        return None
    return sequence(_by_remainders(rules, step), literal("0" * zeros))


def _by_last_digits(step: int, places: int) -> Regular:
    """The multiples of a step that divides 10**places."""
    beginning = concat(One(span("1", "9")), Repeat(One(DIGITS), 0, MOST_DIGITS))
    if places == 0:
        return beginning
    short = [text(str(each)) for each in range(step, 10**places, step)]
    ends = [text(f"{each:0{places}}") for each in range(0, 10**places, step)]
    return either(*short, concat(beginning, either(*ends)))


def _by_remainders(rules: Rules, step: int) -> str:
    """Reads digit by digit and keeps the remainder; may end where it is zero."""
    names = [rules.reserve() for _ in range(step)]
    for remainder, name in enumerate(names):
        options = [NOTHING] if remainder == 0 else []
        rules.define(name, " | ".join(options + _digits_from(remainder, step, names, "0123456789")))
    return rules.share(" | ".join(_digits_from(0, step, names, "123456789")))


def _digits_from(remainder: int, step: int, names: list[str], digits: str) -> list[str]:
    after: dict[int, str] = {}
    for digit in digits:
        target = (remainder * 10 + int(digit)) % step
        after[target] = after.get(target, "") + digit
    return [f"[{digits}] {names[target]}" for target, digits in after.items()]
