"""What xgrammar knows of a tokenizer: the bytes of each token, with control tokens out of reach.

Invariant: a control token (`toolcall.marks.control_tokens`) has bytes that no text can have. In a
grammar only its own `Token(id)` edge then matches it, and whatever spells it is text. The engine
and the router's compiler process share this code, so that both speak of the same tokens.
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolcall.marks import control_tokens

if TYPE_CHECKING:
    from xgrammar.tokenizer_info import TokenizerInfo

NO_TEXT = b"\xff"
"""A byte that is in no UTF-8 text (RFC 3629, section 1), so no grammar's characters match it."""


class TokenizerFile:
    """A model folder's tokenizer.json, as far as xgrammar looks into a Hugging Face tokenizer.

    Its names are those that TokenizerInfo.from_huggingface reads (xgrammar/tokenizer_info.py,
    0.2.8); transformers would take seconds and 100 MB to offer the same.
    """

    def __init__(self, model_dir: Path) -> None:
        self._text = (model_dir / "tokenizer.json").read_text()
        content = json.loads(self._text)
        self._vocab = _vocab(content)
        self.controls = frozenset(control_tokens(content["added_tokens"]))
        self.eos_token_id = self._vocab.get(_eos_token(model_dir) or "")

    @property
    def backend_tokenizer(self) -> "TokenizerFile":
        """What holds `to_str`."""
        return self

    def to_str(self) -> str:
        """The file's text: xgrammar finds the kind of vocabulary in it."""
        return self._text

    def get_vocab(self) -> dict[str, int]:
        """Every token, added ones too, with its id."""
        return self._vocab


def padded_vocab_size(model_dir: Path) -> int:
    """The width of the model's logits, from config.json; never less than the tokenizer has ids."""
    config = json.loads((model_dir / "config.json").read_text())
    # Models that read images keep the sizes of their language part apart.
    return int(config.get("vocab_size") or config["text_config"]["vocab_size"])


def hide_controls(info: "TokenizerInfo", controls: Collection[int]) -> "TokenizerInfo":
    """The same tokenizer with these tokens out of the reach of characters."""
    from xgrammar.tokenizer_info import TokenizerInfo, VocabType

    hidden = set(controls)
    vocab = [
        NO_TEXT + text if token_id in hidden and text else text
        for token_id, text in enumerate(info.decoded_vocab)
    ]
    return TokenizerInfo(
        vocab,
        vocab_type=VocabType.RAW,  # decoded_vocab has left every other spelling behind
        vocab_size=info.vocab_size,
        stop_token_ids=info.stop_token_ids,
        add_prefix_space=info.add_prefix_space,
    )


def _vocab(content: dict[str, Any]) -> dict[str, int]:
    pieces = content["model"]["vocab"]
    if isinstance(pieces, list):  # Unigram: pairs of piece and score, the id is the place
        vocab = {piece: token_id for token_id, (piece, _) in enumerate(pieces)}
    else:
        vocab = dict(pieces)
    return vocab | {token["content"]: token["id"] for token in content["added_tokens"]}


def _eos_token(model_dir: Path) -> str | None:
    path = model_dir / "tokenizer_config.json"
    token = json.loads(path.read_text()).get("eos_token") if path.exists() else None
    return token["content"] if isinstance(token, dict) else token
