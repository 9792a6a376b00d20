"""Does a grammar accept an answer? Asked of xgrammar, with the small GLM model's real tokenizer.

An answer is text with marks: `MARKS.encode` makes one from text in which every tag is meant as a
token; text that only spells a tag is split into ordinary tokens. The tokens of the other families
are added to the tokenizer, so that every format can be tried with its tags as tokens; with
`NO_MARKS` they are text.
"""

import json
from functools import lru_cache

import numpy
import xgrammar
from tokenizers import Tokenizer

from launcher import model
from tests.libs.toolcall.answers import CONTROLS
from toolcall.compiling.tokens import TokenizerFile, hide_controls, padded_vocab_size
from toolcall.marks import Marks, control_tokens

MODEL_DIR = model.ensure("smollm2-glm")
VOCAB_SIZE = padded_vocab_size(MODEL_DIR)


def _controls():
    """The tokenizer's own control tokens, and those of other families on its unused ids."""
    added = json.loads((MODEL_DIR / "tokenizer.json").read_text())["added_tokens"]
    controls = control_tokens(added)
    known = set(controls.values())
    unused = range(max(token["id"] for token in added) + 1, VOCAB_SIZE)
    others = (tag for tag in CONTROLS if tag not in known)
    return controls | dict(zip(unused, others, strict=False))


MARKS = Marks(_controls())
NO_MARKS = Marks({})
STOP = MARKS.token_of("<|im_end|>")
_ID_OF_MARK = {MARKS.mark_of(token_id): token_id for token_id in MARKS.token_ids}


def accepts(ebnf, text):
    """True when the text is a whole answer under the grammar."""
    return is_begun(ebnf, text) and _matcher(ebnf).accept_token(STOP)


def is_begun(ebnf, text):
    """True when the text is an answer or the beginning of one."""
    matcher = _matcher(ebnf)
    matcher.reset()
    return all(map(matcher.accept_token, tokens(text)))


def allowed_after(ebnf, text):
    """The ids of the tokens that the mask lets through after this text."""
    assert is_begun(ebnf, text)
    mask = xgrammar.allocate_token_bitmask(1, VOCAB_SIZE)
    _matcher(ebnf).fill_next_token_bitmask(mask)
    return set(_allowed(mask))


def written_at_random(ebnf, pick):
    """An answer of tokens that the mask allows, each as likely as any other."""
    matcher = _matcher(ebnf)
    matcher.reset()
    mask = xgrammar.allocate_token_bitmask(1, VOCAB_SIZE)
    ids = []
    while not matcher.is_terminated():
        matcher.fill_next_token_bitmask(mask)
        ids.append(pick.choice(_allowed(mask)))
        assert matcher.accept_token(ids[-1])
    texts = _tokenizer_info().decoded_vocab
    marks = {token_id: mark for mark, token_id in _ID_OF_MARK.items()}
    written = b"".join(
        marks[i].encode("utf-8", "surrogatepass") if i in marks else texts[i] for i in ids[:-1]
    )
    return written.decode("utf-8", "surrogatepass")


def tokens(text):
    """The tokens of text with marks; text that spells a tag stays text."""
    ids, run = [], ""
    for character in text:
        if character in _ID_OF_MARK:
            ids += _tokenizer().encode(run, add_special_tokens=False).ids
            ids.append(_ID_OF_MARK[character])
            run = ""
        else:
            run += character
    return ids + _tokenizer().encode(run, add_special_tokens=False).ids


def compiled(ebnf, *, is_cached=True):
    """The grammar compiled for the tokenizer, from its text as the engine does it."""
    # A Grammar object would be printed and read back, which xgrammar 0.2.8 gets wrong.
    compiler = _compiler() if is_cached else _new_compiler(is_cached=False)
    return compiler.compile_grammar(ebnf)


def _allowed(mask):
    bits = numpy.unpackbits(mask.numpy().view(numpy.uint8), bitorder="little")
    return numpy.flatnonzero(bits[:VOCAB_SIZE]).tolist()


@lru_cache(maxsize=64)
def _matcher(ebnf):
    return xgrammar.GrammarMatcher(compiled(ebnf))


@lru_cache(maxsize=1)
def _compiler():
    return _new_compiler(is_cached=True)


def _new_compiler(*, is_cached):
    return xgrammar.GrammarCompiler(_tokenizer_info(), max_threads=1, cache_enabled=is_cached)


@lru_cache(maxsize=1)
def _tokenizer_info():
    vocab = [""] * VOCAB_SIZE
    for text, token_id in TokenizerFile(MODEL_DIR).get_vocab().items():
        vocab[token_id] = text
    info = xgrammar.TokenizerInfo(
        vocab,
        vocab_type=xgrammar.VocabType.BYTE_LEVEL,
        vocab_size=VOCAB_SIZE,
        stop_token_ids=[STOP],
        add_prefix_space=False,
    )
    for token_id in MARKS.token_ids:
        vocab[token_id] = ""
    decoded = info.decoded_vocab
    for mark, token_id in _ID_OF_MARK.items():
        decoded[token_id] = MARKS.spell(mark).encode()
    whole = xgrammar.TokenizerInfo(
        decoded,
        vocab_type=xgrammar.VocabType.RAW,
        vocab_size=VOCAB_SIZE,
        stop_token_ids=[STOP],
        add_prefix_space=False,
    )
    return hide_controls(whole, MARKS.token_ids)


@lru_cache(maxsize=1)
def _tokenizer():
    """The tokenizer without its added tokens: it never makes a token of a spelt tag."""
    content = json.loads((MODEL_DIR / "tokenizer.json").read_text())
    content["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(content))
