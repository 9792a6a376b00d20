"""Strings as values: between tags as raw text, in JSON with quotes.

Lengths, patterns and formats hold exactly. What costs is a counted repeat of characters that many
tokens begin with (a free text of up to 100 characters would take xgrammar half a second), so a
costly greatest length is left to a rule that stops there. Where that is not enough repeats are
counted no further than one, and the string is remembered as not exact.
"""

import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from toolcall.grammar.automata import (
    ANY_ESCAPE,
    NEEDS_ESCAPE,
    automaton,
    in_json,
    known_in_json,
)
from toolcall.grammar.characters import EVERY
from toolcall.grammar.ebnf import NOTHING, Rules, character_class, literal, sequence
from toolcall.grammar.inclusion import is_within
from toolcall.grammar.patterns import translate
from toolcall.grammar.regular import (
    ANY,
    One,
    Regular,
    Repeat,
    cost_ms,
    endless,
    fitted,
    lengths,
    not_holding,
    relaxed,
    states,
)
from toolcall.schema.nodes import String
from toolcall.schema.string_formats import FORMATS

MOST_COST_MS = {"raw": 20.0, "json": 100.0}
"""One string's share of xgrammar's time, as `cost_ms` counts: three free characters fit, in JSON
fifteen, because a rule that counts takes an escape for several characters there."""
MOST_TOTAL_MS = 600.0
"""The same for all costly strings of a grammar; a string that is used twice counts once."""
CHEAP_MS = 16.0
MOST_STATES = 1000
"""States of one string; each is a rule."""
QUOTE = literal('"')

Spelling = Literal["raw", "json"]


@dataclass(frozen=True)
class Shape:
    """What a string may be: a word of the tree, of at most so many characters."""

    tree: Regular
    most: int | None = None

    @property
    def is_free(self) -> bool:
        """True when nothing is asked of the string."""
        return self.tree == ANY and self.most is None


class Strings:
    """The strings of one grammar."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._left_ms = MOST_TOTAL_MS
        self._shapes: dict[tuple[String, Spelling], Shape] = {}
        self._inner: dict[Regular, str] = {}
        self.inexact: dict[String, str] = {}
        """The strings of which the grammar accepts too much, with the reason."""

    def json(self, node: String) -> str:
        """An expression for the string with its quotes.

        A greatest length that a rule counts counts characters as written, `\\n` as two.
        """
        shape = self.shape(node, "json")
        if shape.is_free:
            return self.any_json()
        tree = in_json(shape.tree)
        if shape.most is None:
            return self.quoted(tree)
        inner = self._rules.limited(self._loose(tree), shape.most)
        return self._rules.share(f"{QUOTE} {inner} {QUOTE}")

    def any_json(self) -> str:
        """An expression for any JSON string."""
        return self._rules.share(f"{QUOTE} {self._json_to_quote}")

    @cached_property
    def _json_to_quote(self) -> str:
        # Written out: with escapes in a rule of their own xgrammar takes a third of the time.
        name = self._rules.reserve()
        plain = character_class(EVERY - NEEDS_ESCAPE)
        escape = self._rules.share(automaton(self._rules, ANY_ESCAPE, NOTHING))
        self._rules.define(name, f"{QUOTE} | {plain} {name} | {escape} {name}")
        return name

    def quoted(self, inner: Regular) -> str:
        """An expression for what a tree writes inside a JSON string, with the quotes."""
        return self._rules.share(f"{QUOTE} {automaton(self._rules, inner, QUOTE)}")

    def raw(self, node: String, end: str, end_text: str | None = None) -> str | None:
        """An expression for the string's characters as they are, and the end after them.

        `end_text`: the end as text, which the string must not hold; None when every such string
        might.
        """
        shape = self.shape(node, "raw")
        tree = shape.tree if end_text is None else not_holding(shape.tree, end_text)
        return None if tree is None else self._written(shape, tree, end)

    def whole(self, pattern: str) -> str | None:
        """An expression for text that matches the pattern from end to end, if there is one."""
        translation = translate(pattern, is_whole=True)
        if translation is None:
            return None
        shape, _ = self._affordable(translation.tree, MOST_COST_MS["raw"])
        return self._written(shape, shape.tree, NOTHING)

    def _written(self, shape: Shape, tree: Regular, end: str) -> str:
        if shape.most is None:
            return automaton(self._rules, tree, end)
        return sequence(self._rules.limited(self._loose(tree), shape.most), end)

    def _loose(self, tree: Regular) -> str:
        """A rule for the tree, whatever follows; one for all greatest lengths."""
        if tree not in self._inner:
            if isinstance(tree, Repeat) and isinstance(tree.part, One) and tree.low == 0:
                # Recursive, or it would be set into every rule that uses it, and its masks too.
                body = self._rules.many(character_class(tree.part.allowed))
            else:
                body = self._rules.share(automaton(self._rules, tree, NOTHING))
            self._inner[tree] = body
        return self._inner[tree]

    def shape(self, node: String, spelling: Spelling) -> Shape:
        """What the grammar asks of the string."""
        key = node, spelling
        if key not in self._shapes:
            self._shapes[key] = self._new_shape(node, MOST_COST_MS[spelling])
        return self._shapes[key]

    def _new_shape(self, node: String, most_ms: float) -> Shape:
        tree, most = self._asked(node)
        if most is not None:
            return Shape(self._relaxed(tree), most)
        shape, is_exact = self._affordable(tree, most_ms)
        if not is_exact:
            self._note(node, "a long repeat or length")
        return shape

    def _affordable(self, tree: Regular, most_ms: float) -> tuple[Shape, bool]:
        """The tree as it can be had for this cost, and whether its words are exactly the same."""
        if self._spend(tree, most_ms):
            return Shape(tree), True
        most = lengths(tree)[1]
        open_tree = endless(tree)
        if open_tree is not None and self._spend(open_tree, most_ms):
            return Shape(open_tree, most), True
        return Shape(self._relaxed(tree), most), False

    def _asked(self, node: String) -> tuple[Regular, int | None]:
        """All that the node asks as a tree, and a greatest length that is not part of it."""
        pattern, form = node.pattern, FORMATS.get(node.format or "")
        if pattern is not None and form is not None:
            pattern, is_both = _narrower(pattern, form)
            if not is_both:
                self._note(node, f"the format {node.format} beside a pattern")
        elif pattern is None:
            pattern = form
        translation = None if pattern is None else translate(pattern)
        if translation is None:
            if pattern is not None:
                self._note(node, f"the pattern {pattern}")
            return Repeat(One(EVERY), node.min_length, node.max_length), None
        if not translation.is_exact:
            self._note(node, f"characters beyond ASCII in the pattern {pattern}")
        fit = fitted(translation.tree, node.min_length, node.max_length)
        if fit is None:
            self._note(node, "the length beside a pattern")
            return translation.tree, node.max_length
        return fit, None

    def _spend(self, tree: Regular, most_ms: float = CHEAP_MS) -> bool:
        """Takes what counting costs in a tree from what is left, if it is affordable."""
        cost = cost_ms(tree) - cost_ms(relaxed(tree, 0.0))
        limit = max(CHEAP_MS, min(most_ms, self._left_ms))
        if cost > limit or states(tree) > MOST_STATES:
            return False
        if cost > CHEAP_MS:
            self._left_ms -= cost
        return True

    def _relaxed(self, tree: Regular) -> Regular:
        """The tree, relaxed until it is affordable."""
        for most_ms in (CHEAP_MS, 1.0, 0.0):
            wider = relaxed(tree, most_ms)
            if self._spend(wider):
                return wider
        return ANY if states(wider) > MOST_STATES else wider

    def _note(self, node: String, reason: str) -> None:
        self.inexact.setdefault(node, reason)


@lru_cache(maxsize=1000)
def _narrower(pattern: str, form: str) -> tuple[str, bool]:
    """The one of a pattern and a format's that holds the other, and True; else the pattern."""
    ours, theirs = translate(pattern), translate(form)
    if ours is None or theirs is None:
        return pattern, False
    if ours.is_exact and is_within(theirs.tree, ours.tree):
        return form, True
    return pattern, theirs.is_exact and is_within(ours.tree, theirs.tree)


def json_text(rules: Rules, text: str) -> str:
    """An expression for one known string in JSON."""
    plain = json.dumps(text)
    if len(plain) == len(text) + 2:
        return literal(plain)
    return f"{QUOTE} {automaton(rules, known_in_json(text), QUOTE)}"
