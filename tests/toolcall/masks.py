"""Which token a grammar refuses first, by the matcher that masks sampling in the engine."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import xgrammar

from launcher import model
from tests.toolcall.cluster import write_model_folder
from toolcall.compiling.tokens import TokenizerFile, hide_controls

EOS = 2


@cache
def _info(has_family_tokens: bool) -> xgrammar.TokenizerInfo:
    if not has_family_tokens:
        return _info_of(model.ensure("smollm2-glm"))
    with TemporaryDirectory() as folder:
        return _info_of(write_model_folder(Path(folder), has_family_tokens=True))


def _info_of(model_dir: Path) -> xgrammar.TokenizerInfo:
    tokenizer = TokenizerFile(model_dir)
    by_id = sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    config = json.loads((model_dir / "generation_config.json").read_text())
    info = xgrammar.TokenizerInfo(
        [token for token, _ in by_id],
        vocab_type=xgrammar.VocabType.BYTE_LEVEL,
        stop_token_ids=config["eos_token_id"],
    )
    return hide_controls(info, tokenizer.controls)


@cache
def _compiler(has_family_tokens: bool) -> xgrammar.GrammarCompiler:
    return xgrammar.GrammarCompiler(_info(has_family_tokens), max_threads=1)


def ends_allowed(ebnf: str, token_ids: list[int]) -> list[list[int]]:
    """For each place in the answer, also behind its last token, the stop tokens that may come."""
    info = _info(False)
    compiled = _compiler(False).compile_grammar(xgrammar.Grammar.from_ebnf(ebnf))
    matcher = xgrammar.GrammarMatcher(compiled)
    allowed = []
    for token_id in [*token_ids, None]:
        mask = xgrammar.allocate_token_bitmask(1, info.vocab_size)
        matcher.fill_next_token_bitmask(mask)
        allowed.append(
            [stop for stop in info.stop_token_ids if mask[0, stop // 32] >> (stop % 32) & 1]
        )
        assert token_id is None or matcher.accept_token(token_id)
    return allowed


def first_refused(ebnf: str, token_ids: list[int], *, has_family_tokens: bool) -> int | None:
    """The index of the first refused token; the end of the answer counts as one more token."""
    compiled = _compiler(has_family_tokens).compile_grammar(xgrammar.Grammar.from_ebnf(ebnf))
    matcher = xgrammar.GrammarMatcher(compiled)
    for index, token_id in enumerate([*token_ids, EOS]):
        if not matcher.accept_token(token_id):
            return index
    return None
