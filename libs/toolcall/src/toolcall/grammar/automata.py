"""Regular trees as rules, each with what follows it.

Every rule ends by what comes next, down to the end that the caller gives: a rule that ends in the
middle of a word leaves xgrammar in doubt about all tokens that go on from there, and a mask then
takes 30 ms instead of 5 us.
"""

from toolcall.grammar.characters import EVERY, Characters, characters, one_of, span
from toolcall.grammar.ebnf import Rules, character_class, literal, sequence
from toolcall.grammar.regular import (
    Concat,
    Either,
    One,
    Regular,
    Repeat,
    concat,
    cost_ms,
    either,
    text,
    without_empty,
)

CHEAP_MS = 2.0
"""Counted characters that cost less are left to the grammar's own `{a,b}`."""
LONG = 60
"""Characters of an expression above which it gets a rule before it is used in several places."""
SHORT_ESCAPES = {'"': '"', "\\": "\\", "/": "/"} | dict(zip("\b\f\n\r\t", "bfnrt", strict=True))
CONTROLS = characters([(0, 0x1F)])
NEEDS_ESCAPE = CONTROLS | one_of('"\\')
HEX = One(span("0", "9") | span("A", "F") | span("a", "f"))


def automaton(rules: Rules, tree: Regular, end: str) -> str:
    """An expression for the words of the tree, each followed by the end."""
    match tree:
        case One(allowed):
            return sequence(character_class(allowed), end)
        case Concat(parts):
            return _concat(rules, parts, end)
        case Either(options):
            after = _named(rules, end)
            return rules.choice(automaton(rules, option, after) for option in options)
        case Repeat(One(allowed), low, high):
            return _repeated_class(rules, allowed, low, high, end)
        case Repeat(part, low, high):
            return _repeated(rules, part, low, high, _named(rules, end))


def in_json(tree: Regular) -> Regular:
    """The same words as they are written inside a JSON string.

    A character that needs no escape is written as itself, except that a tree of every character
    takes all escapes.
    """
    match tree:
        case One(allowed):
            return _json_character(allowed)
        case Concat(parts):
            return concat(*map(in_json, parts))
        case Either(options):
            return Either(tuple(map(in_json, options)))
        case Repeat(part, low, high):
            return Repeat(in_json(part), low, high)


def known_in_json(known: str) -> Regular:
    """One known text inside a JSON string; characters beyond ASCII may also be escaped."""
    return concat(*map(_known_character, known))


def _concat(rules: Rules, parts: tuple[Regular, ...], end: str) -> str:
    """From the last part to the first; single characters in a row become one literal."""
    run: list[str] = []
    for part in reversed(parts):
        character = part.allowed.only() if isinstance(part, One) else None
        if character is not None:
            run.append(character)
            continue
        end = sequence(literal("".join(reversed(run))), end)
        run.clear()
        end = automaton(rules, part, end)
    return sequence(literal("".join(reversed(run))), end)


def _repeated_class(rules: Rules, allowed: Characters, low: int, high: int | None, end: str) -> str:
    one = character_class(allowed)
    if high is None:
        return sequence(*[one] * (low - 1), f"{one}{'+' if low else '*'}", end)
    if cost_ms(One(allowed)) * high <= CHEAP_MS:
        return sequence(f"{one}{{{low},{high}}}", end) if high else end
    end = _named(rules, end)
    rest = end
    for _ in range(high - low):
        rest = rules.choice((end, f"{one} {rest}"))
    return sequence(*[one] * low, rest)


def _repeated(rules: Rules, part: Regular, low: int, high: int | None, end: str) -> str:
    rest = end
    if high is None:
        inner = without_empty(part)
        if inner is not None:
            rest = rules.loop((inner, end), lambda name: f"{end} | {automaton(rules, inner, name)}")
    else:
        for _ in range(high - low):
            rest = rules.choice((end, automaton(rules, part, rest)))
    for _ in range(low):
        rest = automaton(rules, part, rest)
    return rest


def _named(rules: Rules, expression: str) -> str:
    return rules.share(expression) if len(expression) > LONG else expression


def _json_character(allowed: Characters) -> Regular:
    if allowed == EVERY:
        return either(One(EVERY - NEEDS_ESCAPE), ANY_ESCAPE)
    options: list[Regular] = []
    if allowed - NEEDS_ESCAPE:
        options.append(One(allowed - NEEDS_ESCAPE))
    shorts = "".join(short for character, short in SHORT_ESCAPES.items() if character in allowed)
    if shorts:
        options.append(concat(text("\\"), One(one_of(shorts))))
    if not CONTROLS - allowed:
        options.append(concat(text("\\u00"), One(one_of("01")), HEX))
    else:
        options += [_escaped(c) for c in map(chr, range(0x20)) if c in allowed]
    return either(*options)


def _known_character(character: str) -> Regular:
    options: list[Regular] = []
    if character not in NEEDS_ESCAPE:
        options.append(text(character))
    elif character in SHORT_ESCAPES:
        options.append(text(f"\\{SHORT_ESCAPES[character]}"))
    if not " " <= character <= "~":
        options.append(_escaped(character))
    return either(*options)


def _escaped(character: str) -> Regular:
    """The character as `\\uXXXX`, twice where it needs a surrogate pair; digits of either case."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    codes = [units[at : at + 4] for at in range(0, len(units), 4)]
    digits = [One(one_of(digit + digit.upper())) for digit in "".join(codes)]
    return concat(*(concat(text("\\u"), *digits[at : at + 4]) for at in range(0, len(digits), 4)))


def _any_escape() -> Regular:
    """Any escape of RFC 8259, section 7, for a whole character.

    Half a surrogate pair is none: Python reads it, most other parsers refuse the document.
    """
    high = One(one_of("Dd"))
    other = One(HEX.allowed - one_of("Dd"))
    pair = concat(One(one_of("89ABab")), HEX, HEX, text("\\u"), high, One(one_of("CDEFcdef")))
    code = either(
        concat(other, HEX, HEX, HEX),
        concat(high, either(concat(One(span("0", "7")), HEX, HEX), concat(pair, HEX, HEX))),
    )
    short = One(one_of("".join(SHORT_ESCAPES.values())))
    return concat(text("\\"), either(short, concat(text("u"), code)))


ANY_ESCAPE = _any_escape()
