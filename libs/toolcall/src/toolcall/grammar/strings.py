"""Strings as values: between tags as raw text, in JSON with quotes.

Lengths, patterns and formats hold exactly while their automaton is cheap; else they are counted no
further than one character or left to the guard, and the string is remembered as not exact. What
costs is a repeat of characters that many tokens begin with: a free text of up to 100 characters
takes xgrammar two thirds of a second.
"""

import json

from toolcall.grammar.automata import (
    ANY_ESCAPE,
    NEEDS_ESCAPE,
    automaton,
    in_json,
    known_in_json,
)
from toolcall.grammar.characters import EVERY, Characters
from toolcall.grammar.ebnf import NOTHING, Rules, character_class, literal
from toolcall.grammar.patterns import translate
from toolcall.grammar.regular import (
    ANY,
    One,
    Regular,
    Repeat,
    cost_ms,
    fitted,
    relaxed,
    states,
    without,
)
from toolcall.schema.nodes import String
from toolcall.schema.string_formats import FORMATS

MOST_COST_MS = 64.0
"""One string's share of xgrammar's time, as `cost_ms` counts; ten free characters fit."""
MOST_TOTAL_MS = 200.0
"""The same for all costly strings of a grammar; a string that is used twice counts once."""
CHEAP_MS = 16.0
MOST_STATES = 1000
"""States of one string; each is a rule."""
QUOTE = literal('"')


class Strings:
    """The strings of one grammar."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._left_ms = MOST_TOTAL_MS
        self._trees: dict[String, Regular] = {}
        self._any: str | None = None
        self.inexact: dict[String, str] = {}
        """The strings of which the grammar accepts too much, with the reason."""

    def json(self, node: String) -> str:
        """An expression for the string with its quotes."""
        tree = self._tree(node)
        return self.any_json() if tree == ANY else self.quoted(in_json(tree))

    def any_json(self) -> str:
        """An expression for any JSON string."""
        if self._any is None:
            # Written out, because a loop that is not recursive is kept in xgrammar's cache.
            plain = f"{character_class(EVERY - NEEDS_ESCAPE)}*"
            escape = automaton(self._rules, ANY_ESCAPE, NOTHING)
            self._any = self._rules.share(f"{QUOTE} {plain} ({escape} {plain})* {QUOTE}")
        return self._any

    def quoted(self, inner: Regular) -> str:
        """An expression for what a tree writes inside a JSON string, with the quotes."""
        return self._rules.share(f"{QUOTE} {automaton(self._rules, inner, QUOTE)}")

    def raw(self, node: String, end: str, taboo: Characters | None = None) -> str | None:
        """An expression for the string's characters as they are, and the end after them.

        None when every such string needs a taboo character.
        """
        tree = self._tree(node)
        allowed = tree if taboo is None else without(tree, taboo)
        return None if allowed is None else automaton(self._rules, allowed, end)

    def whole(self, pattern: str) -> str | None:
        """An expression for text that matches the pattern from end to end, if there is one."""
        translation = translate(pattern, is_whole=True)
        if translation is None:
            return None
        return automaton(self._rules, self._affordable(translation.tree)[0], NOTHING)

    def is_free(self, node: String) -> bool:
        """True for a string of which the grammar asks nothing."""
        return self._tree(node) == ANY

    def _tree(self, node: String) -> Regular:
        if node not in self._trees:
            self._trees[node] = self._new_tree(node)
        return self._trees[node]

    def _new_tree(self, node: String) -> Regular:
        pattern = node.pattern if node.pattern is not None else FORMATS.get(node.format or "")
        if node.pattern is not None and node.format in FORMATS:
            self._note(node, f"the format {node.format} beside a pattern")
        translation = None if pattern is None else translate(pattern)
        if translation is None:
            if pattern is not None:
                self._note(node, f"the pattern {pattern}")
            tree: Regular = Repeat(One(EVERY), node.min_length, node.max_length)
        else:
            if not translation.is_exact:
                self._note(node, f"characters beyond ASCII in the pattern {pattern}")
            fit = fitted(translation.tree, node.min_length, node.max_length)
            if fit is None:
                self._note(node, "the length beside a pattern")
            tree = fit or translation.tree
        tree, is_whole = self._affordable(tree)
        if not is_whole:
            self._note(node, "a long repeat or length")
        return tree

    def _affordable(self, tree: Regular) -> tuple[Regular, bool]:
        """The tree, relaxed until it costs little enough, and whether it did not have to be."""
        limit = max(CHEAP_MS, min(MOST_COST_MS, self._left_ms))
        given = tree
        for most_ms in (MOST_COST_MS, CHEAP_MS, 1.0, 0.0):
            tree = relaxed(tree, most_ms)
            if cost_ms(tree) <= limit and states(tree) <= MOST_STATES:
                break
        if states(tree) > MOST_STATES:
            tree = ANY
        if cost_ms(tree) > CHEAP_MS:
            self._left_ms -= cost_ms(tree)
        return tree, tree == given

    def _note(self, node: String, reason: str) -> None:
        self.inexact.setdefault(node, reason)


def json_text(rules: Rules, text: str) -> str:
    """An expression for one known string in JSON."""
    plain = json.dumps(text)
    if len(plain) == len(text) + 2:
        return literal(plain)
    return f"{QUOTE} {automaton(rules, known_in_json(text), QUOTE)}"
