"""Strings as values: between tags as raw text, in JSON with quotes.

Lengths, patterns and formats hold exactly. What costs is a counted repeat of characters that many
tokens begin with (a free text of up to 100 characters would take xgrammar half a second), so a
costly greatest length is left to a rule that stops there. Where that is not enough repeats are
counted no further than one, and the string is remembered as not exact.
"""

import json
from dataclasses import dataclass
from functools import cached_property

from toolcall.grammar.automata import (
    ANY_ESCAPE,
    NEEDS_ESCAPE,
    automaton,
    in_json,
    known_in_json,
)
from toolcall.grammar.characters import EVERY, Characters
from toolcall.grammar.ebnf import NOTHING, Rules, character_class, literal, sequence
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
    relaxed,
    states,
    without,
)
from toolcall.schema.nodes import String
from toolcall.schema.string_formats import FORMATS

MOST_COST_MS = 20.0
"""One string's share of xgrammar's time, as `cost_ms` counts; three free characters fit."""
MOST_TOTAL_MS = 100.0
"""The same for all costly strings of a grammar; a string that is used twice counts once."""
CHEAP_MS = 16.0
MOST_STATES = 1000
"""States of one string; each is a rule."""
LONGEST = 1_000_000
"""A greatest length above it needs no rule: no answer is so long."""
QUOTE = literal('"')


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
        self._shapes: dict[String, Shape] = {}
        self.inexact: dict[String, str] = {}
        """The strings of which the grammar accepts too much, with the reason."""

    def json(self, node: String) -> str:
        """An expression for the string with its quotes.

        A greatest length that a rule counts counts characters as written, `\\n` as two.
        """
        shape = self.shape(node)
        if shape.is_free:
            return self.any_json()
        if shape.most is None:
            return self.quoted(in_json(shape.tree))
        if shape.tree == ANY:
            inner = self._any_json_characters
        else:
            inner = automaton(self._rules, in_json(shape.tree), NOTHING)
        return self._rules.share(f"{QUOTE} {self._rules.limited(inner, shape.most)} {QUOTE}")

    def any_json(self) -> str:
        """An expression for any JSON string."""
        return self._rules.share(f"{QUOTE} {self._any_json_characters} {QUOTE}")

    @cached_property
    def _any_json_characters(self) -> str:
        # Written out, because a loop that is not recursive is kept in xgrammar's cache.
        plain = f"{character_class(EVERY - NEEDS_ESCAPE)}*"
        escape = automaton(self._rules, ANY_ESCAPE, NOTHING)
        return f"{plain} ({escape} {plain})*"

    def quoted(self, inner: Regular) -> str:
        """An expression for what a tree writes inside a JSON string, with the quotes."""
        return self._rules.share(f"{QUOTE} {automaton(self._rules, inner, QUOTE)}")

    def raw(self, node: String, end: str, taboo: Characters | None = None) -> str | None:
        """An expression for the string's characters as they are, and the end after them.

        None when every such string needs a taboo character.
        """
        shape = self.shape(node)
        tree = shape.tree if taboo is None else without(shape.tree, taboo)
        if tree is None:
            return None
        if shape.most is None:
            return automaton(self._rules, tree, end)
        inner = automaton(self._rules, tree, NOTHING)
        return sequence(self._rules.limited(inner, shape.most), end)

    def whole(self, pattern: str) -> str | None:
        """An expression for text that matches the pattern from end to end, if there is one."""
        translation = translate(pattern, is_whole=True)
        if translation is None:
            return None
        return automaton(self._rules, self._relaxed(translation.tree), NOTHING)

    def shape(self, node: String) -> Shape:
        """What the grammar asks of the string."""
        if node not in self._shapes:
            self._shapes[node] = self._new_shape(node)
        return self._shapes[node]

    def _new_shape(self, node: String) -> Shape:
        tree, most = self._asked(node)
        if most is None and not self._spend(tree):
            most = lengths(tree)[1]
            open_tree = endless(tree)
            if open_tree is None or not self._spend(open_tree):
                open_tree = self._relaxed(tree)
                self._note(node, "a long repeat or length")
            tree = open_tree
        return Shape(tree, most if most is not None and most <= LONGEST else None)

    def _asked(self, node: String) -> tuple[Regular, int | None]:
        """All that the node asks as a tree, and a greatest length that is not part of it."""
        pattern = node.pattern if node.pattern is not None else FORMATS.get(node.format or "")
        if node.pattern is not None and node.format in FORMATS:
            self._note(node, f"the format {node.format} beside a pattern")
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
            return self._relaxed(translation.tree), node.max_length
        return fit, None

    def _spend(self, tree: Regular) -> bool:
        """Takes a tree's cost from what is left, if it is affordable."""
        cost = cost_ms(tree)
        limit = max(CHEAP_MS, min(MOST_COST_MS, self._left_ms))
        if cost > limit or states(tree) > MOST_STATES:
            return False
        if cost > CHEAP_MS:
            self._left_ms -= cost
        return True

    def _relaxed(self, tree: Regular) -> Regular:
        """The tree, relaxed until it is affordable."""
        for most_ms in (MOST_COST_MS, CHEAP_MS, 1.0, 0.0):
            wider = relaxed(tree, most_ms)
            if self._spend(wider):
                return wider
        return ANY if states(wider) > MOST_STATES else wider

    def _note(self, node: String, reason: str) -> None:
        self.inexact.setdefault(node, reason)


def json_text(rules: Rules, text: str) -> str:
    """An expression for one known string in JSON."""
    plain = json.dumps(text)
    if len(plain) == len(text) + 2:
        return literal(plain)
    return f"{QUOTE} {automaton(rules, known_in_json(text), QUOTE)}"
