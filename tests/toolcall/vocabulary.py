"""A tokenizer as the cases use it: text and control tokens never mix.

`smollm2-glm` carries GLM's control tokens. The variant of all families has those of DeepSeek and
Kimi too, added behind its vocabulary, so that their formats can be tested as tokens.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from launcher import model
from toolcall.marks import Marks, control_tokens
from toolcheck_suite.notation import Output

FAMILY_TOKENS = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "｜DSML｜",
)


@dataclass(frozen=True)
class Vocabulary:
    """One tokenizer's file, its text part without added tokens, and its control tokens."""

    content: dict[str, Any]
    text: Tokenizer
    full: Tokenizer
    marks: Marks

    def encode(self, output: Output) -> list[int]:
        """Token ids; text never becomes a control token, however it is spelt."""
        ids: list[int] = []
        for piece in output.pieces:
            if piece.is_control:
                token = self.marks.token_of(piece.text)
                assert token is not None, f"no control token {piece.text}"
                ids.append(token)
            else:
                ids += self.text.encode(piece.text, add_special_tokens=False).ids
        return ids

    def marked(self, output: Output) -> str:
        """The output as the parser reads it."""
        return "".join(
            self.marks.encode(piece.text) if piece.is_control else piece.text
            for piece in output.pieces
        )

    def texts(self, token_ids: Sequence[int]) -> Iterator[str]:
        """What each token adds; one in the middle of a character adds nothing."""
        stream = DecodeStream(skip_special_tokens=False)
        for token_id in token_ids:
            mark = self.marks.mark_of(token_id)
            yield mark if mark is not None else stream.step(self.full, token_id) or ""

    def tokens_at(self, token_ids: Sequence[int], at: int) -> range:
        """The indexes of the tokens that make up character `at` of the spelt text.

        Several where its bytes are cut; that behind the last where the text ends before it.
        """
        length = first = 0
        for index, text in enumerate(self.texts(token_ids)):
            length += len(self.marks.spell(text))
            if length > at:
                return range(first, index + 1)
            if text:
                first = index + 1
        return range(len(token_ids), len(token_ids) + 1)


@cache
def vocabulary(*, has_family_tokens: bool) -> Vocabulary:
    """The tokenizer of smollm2-glm, or its variant with the tokens of every family."""
    return read(model.ensure("smollm2-glm") / "tokenizer.json", has_family_tokens=has_family_tokens)


def read(path: Path, *, has_family_tokens: bool) -> Vocabulary:
    """A vocabulary from a tokenizer.json."""
    content = json.loads(path.read_text())
    if has_family_tokens:
        content["added_tokens"] += _family_tokens(content)
    bare = {**content, "added_tokens": []}
    return Vocabulary(
        content,
        Tokenizer.from_str(json.dumps(bare)),
        Tokenizer.from_str(json.dumps(content)),
        Marks(control_tokens(content["added_tokens"])),
    )


def _family_tokens(content: dict[str, Any]) -> list[dict[str, Any]]:
    known = {token["content"] for token in content["added_tokens"]}
    first = max(token["id"] for token in content["added_tokens"]) + 1
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return [
        {"id": first + index, "content": text, **flags}
        for index, text in enumerate(FAMILY_TOKENS)
        if text not in known
    ]
