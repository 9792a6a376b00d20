"""What the engine and the compiler process each know of a tokenizer, compared in a fresh process.

    python -m tests.libs.engine.tokenizers_probe MODEL_DIR EMPTY_DIR

The compiler process reads tokenizer.json by itself, the engine asks transformers: they must agree
on every token. Prints a JSON line for the model's byte-level tokenizer and one for a small one of
the kind that SentencePiece models have.
"""

import json
import sys
from pathlib import Path
from unittest.mock import patch

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from xgrammar import TokenizerInfo

from toolcall.compiling.tokens import TokenizerFile, hide_controls, padded_vocab_size
from toolcall.marks import control_tokens

BLANK = "▁"


def write_sentencepiece_like(folder):
    """A tokenizer with byte fallback, special tokens and one visible tag, without a model."""
    high_bytes = [f"<0x{byte:02X}>" for byte in range(0x80, 0x100)]
    pieces = ["<unk>", "</s>", "<0x0A>", BLANK, "a", BLANK + "a", *high_bytes]
    vocab = {piece: token_id for token_id, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab, [(BLANK, "a")], unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(BLANK), normalizers.Replace(" ", BLANK)]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    tokenizer.add_tokens([AddedToken("<think>", special=False)])
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    (folder / "config.json").write_text('{"vocab_size": 192}')
    return PreTrainedTokenizerFast(tokenizer_file=str(path), eos_token="</s>")


def compare(tokenizer, folder, shown):
    """Prints whether both sides know the same, and some of it."""
    size = padded_vocab_size(folder)
    added = tokenizer.added_tokens_decoder.items()
    controls = control_tokens(
        {"id": token_id, "content": token.content, "special": token.special}
        for token_id, token in added
    )
    of_engine = hide_controls(TokenizerInfo.from_huggingface(tokenizer, vocab_size=size), controls)
    file = TokenizerFile(folder)
    with patch("xgrammar.tokenizer_info.PreTrainedTokenizerFast", TokenizerFile):
        of_child = hide_controls(
            TokenizerInfo.from_huggingface(file, vocab_size=size), file.controls
        )
    vocab = of_engine.decoded_vocab
    known = {
        "is_same": told(of_engine) == told(of_child),
        "shown": [vocab[token_id].hex() for token_id in shown],
        "stop": of_engine.stop_token_ids,
        "size": of_engine.vocab_size,
        "without_bytes": len(of_engine.special_token_ids),
    }
    sys.stdout.write(f"probe {json.dumps(known)}\n")


def told(info):
    """Everything that xgrammar takes from a tokenizer."""
    return (
        info.decoded_vocab,
        info.stop_token_ids,
        info.special_token_ids,
        info.vocab_size,
        info.add_prefix_space,
    )


def main():
    glm, empty = Path(sys.argv[1]), Path(sys.argv[2])
    compare(AutoTokenizer.from_pretrained(glm), glm, [49161, 49162, 2, 198])
    compare(write_sentencepiece_like(empty), empty, [2, 3, 4, 5, 6, 134])


if __name__ == "__main__":
    main()
