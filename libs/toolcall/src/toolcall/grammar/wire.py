"""A format's literals as expressions, and free text that cannot be taken for them.

A literal that the tokenizer has as a control token becomes an edge of that token; no character
matches it, so text may spell it. What the tokenizer lacks stays text, and then free text and raw
values must not hold it.
"""

import re
from collections.abc import Sequence

from toolcall.formats.table import JsonCall, TaggedArguments, WireFormat
from toolcall.grammar.automata import automaton
from toolcall.grammar.characters import EVERY, one_of
from toolcall.grammar.complements import not_beginning_with, other_than
from toolcall.grammar.ebnf import (
    ANY_CHARACTER,
    ANY_TEXT,
    NOTHING,
    Rules,
    any_token_but,
    literal,
    sequence,
    text_without,
    token,
)
from toolcall.grammar.regular import ANY, One, Repeat, concat, either, optional, text
from toolcall.marks import Marks

BLANKS = " \t\r\n"
_MARK = re.compile("([\ud800-\udfff])")
_BETWEEN_TAGS = re.compile(r"(?<=>)\s*(?=<)")


class Wire:
    """The literals of one format for one tokenizer.

    In GLM's formats nothing but the next tag ends a name, so a line feed between tags is layout:
    GLM-4.5 writes them and GLM-4.7 does not, and both forms are accepted under either row.
    """

    def __init__(self, rules: Rules, marks: Marks, format: WireFormat | None) -> None:
        self._rules, self._marks = rules, marks
        is_tagged = format is not None and isinstance(format.arguments, TaggedArguments)
        self._is_loose = is_tagged and format is not None and not format.name_close.strip()
        self.layout = rules.optional(literal("\n")) if self._is_loose else NOTHING
        """What may stand between two tags besides what their literals say."""
        self._lines: str | None = None

    def literal(self, text: str) -> str:
        """An expression for a literal, without what may follow it as layout."""
        if not self._is_loose:
            return self._exact(text)
        pieces = [self._exact(piece) for piece in _BETWEEN_TAGS.split(text.strip(BLANKS)) if piece]
        return f" {self.layout} ".join(pieces) or NOTHING

    def is_text(self, text: str) -> bool:
        """True when no control token is part of the literal."""
        return _MARK.search(self._marks.encode(text)) is None

    def text_up_to(self, end: str, most: int | None = None) -> str:
        """An expression for any text and the first place of this literal after it.

        `most` characters at most where a rule can count them, which is in Qwen's format only.
        """
        if not self.is_text(end):
            return sequence(ANY_TEXT, self.literal(end))
        edge, inner = end[0], end[1:-1]
        if edge != end[-1]:
            # No end of the literal is a beginning of it, so a text without it can't make one up.
            return sequence(self._rules.share(text_without([end])), self.literal(end))
        # Qwen's closing tag has a line of its own: lines that are not the tag, then the tag.
        assert edge not in inner
        line = One(EVERY - one_of(edge))
        others = Repeat(concat(text(edge), other_than([inner], one_of(edge))), 0, None)
        lines = concat(Repeat(line, 0, None), others)
        if most is None:
            return automaton(self._rules, lines, literal(end))
        if self._lines is None:
            self._lines = self._rules.share(automaton(self._rules, lines, NOTHING))
        return sequence(self._rules.limited(self._lines, most), literal(end))

    def prose(self, stops: Sequence[str]) -> str:
        """An expression for free text, in which none of these literals begins."""
        texts = [stop.lstrip(BLANKS) for stop in stops if self.is_text(stop)]
        if texts:
            return self._rules.share(text_without(texts))
        unit = self._unit(stops)
        return ANY_TEXT if unit is None else self._rules.many(unit)

    def prose_before(self, stops: Sequence[str], end: str | None) -> str:
        """An expression for such text and then perhaps `end`."""
        if end is None:
            return self.prose(stops)
        unit = self._unit(stops)
        if unit is not None:
            # One rule: where two rules that may both be empty follow each other beside a choice of
            # blanks, xgrammar 0.2.8 forgets that the answer may end.
            return self._rules.many(unit, end)
        return sequence(self.prose(stops), self._rules.optional(end))

    def _unit(self, stops: Sequence[str]) -> str | None:
        """What free text is repeated of, if these stops are told by the token that begins them."""
        if not all(_MARK.match(self._marks.encode(stop)) for stop in stops):
            return None
        if self._rules.has_limits:
            # Beside a rule that counts characters xgrammar takes 20 ms for a mask of token edges.
            return ANY_CHARACTER
        # Token by token: cheaper to compile, and as free as without a grammar.
        return any_token_but(self._marks.token_ids) if self._marks.token_ids else None

    def _exact(self, text: str) -> str:
        parts = [part for part in _MARK.split(self._marks.encode(text)) if part]
        return sequence(*(self._token(p) if _MARK.match(p) else literal(p) for p in parts))

    def _token(self, mark: str) -> str:
        token_id = self._marks.token_of(self._marks.spell(mark))
        assert token_id is not None
        return token((token_id,))


def first_tag(literal: str) -> str:
    """A literal of one or more tags up to the end of the first: what a reader knows it by."""
    return _BETWEEN_TAGS.split(literal.strip(BLANKS))[0]


def prose_unlike_calls(rules: Rules, format: WireFormat, keys: JsonCall) -> str:
    """An expression for text that does not begin as a call does where calls have no opening tag."""
    tree = not_beginning_with([f'{keys.name_key}"', f'{keys.arguments_key}"'])
    for character in reversed([*format.section_open.strip(BLANKS), "{", '"']):
        other = concat(One(EVERY - one_of(BLANKS + character)), ANY)
        blanks = Repeat(One(one_of(BLANKS)), 0, None)
        tree = concat(blanks, optional(either(other, concat(text(character), tree))))
    return automaton(rules, tree, NOTHING)
