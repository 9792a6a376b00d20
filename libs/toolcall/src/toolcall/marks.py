"""Control tokens as single characters, so that a tag is never confused with text that spells it.

Models write `<tool_call>` as one token of its own; the same characters may also be ordinary text
inside an argument. The router gives each control token a lone surrogate, a code point that no
decoded text can hold, and the parser reads one plain `str` in which marks and text differ.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from toolcall.errors import ToolCallError

FIRST_MARK, MOST_MARKS = 0xD800, 0x800
TAG_EDGES = (("<", ">"), ("[", "]"), ("｜", "｜"))
"""`｜DSML｜` (DeepSeek) is a tag's inside; its tokenizers do not call it special."""


class Marks:
    """The control tokens of one tokenizer."""

    def __init__(self, controls: Mapping[int, str]) -> None:
        if len(controls) > MOST_MARKS:
            raise ToolCallError(f"expected at most {MOST_MARKS} control tokens: {len(controls)}")
        self.token_ids = tuple(sorted(controls))
        self._mark_of = {id_: chr(FIRST_MARK + i) for i, id_ in enumerate(self.token_ids)}
        self._text_of = {self._mark_of[id_]: controls[id_] for id_ in self.token_ids}
        self._id_of_text = {controls[id_]: id_ for id_ in self.token_ids}
        self._mark_of_text = {text: self._mark_of[id_] for text, id_ in self._id_of_text.items()}
        self._spelling = str.maketrans(self._text_of)
        # The longest first: one token's text may begin another's.
        texts = sorted(self._id_of_text, key=len, reverse=True)
        self._controls = re.compile("|".join(map(re.escape, texts))) if texts else None

    def mark_of(self, token_id: int) -> str | None:
        """The mark of a control token, None for a token that is text."""
        return self._mark_of.get(token_id)

    def token_of(self, text: str) -> int | None:
        """The control token that is written like this, None when there is none."""
        return self._id_of_text.get(text)

    def encode(self, literal: str) -> str:
        """A format's literal with each control token that it spells replaced by its mark."""
        if self._controls is None:
            return literal
        return self._controls.sub(lambda found: self._mark_of_text[found[0]], literal)

    def spell(self, text: str) -> str:
        """The text with every mark written out as its token's text."""
        return text.translate(self._spelling)


def control_tokens(added_tokens: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """Control tokens among `added_tokens` of a tokenizer.json: the special and the tag-like ones.

    Some tokenizers also keep ordinary text there (runs of blanks); that stays text.
    """
    return {
        token["id"]: token["content"]
        for token in added_tokens
        if token["content"].strip() and (token.get("special") or _is_tag(token["content"]))
    }


def _is_tag(text: str) -> bool:
    return text.startswith("/") or any(
        text.startswith(first) and text.endswith(last) for first, last in TAG_EDGES
    )
