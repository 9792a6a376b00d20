"""xgrammar over a model folder's real vocabulary, as an engine would use it."""

import json
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolcall.compiling.tokens import TokenizerFile, hide_controls, padded_vocab_size

MOST_KEPT = 64


class Masks:
    """Compiles grammars and walks them token by token."""

    def __init__(self, model_dir: Path) -> None:
        import xgrammar

        tokenizer = TokenizerFile(model_dir)
        by_id = sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
        ends = json.loads((model_dir / "generation_config.json").read_text())["eos_token_id"]
        info = xgrammar.TokenizerInfo(
            [token for token, _ in by_id],
            # The laptop's models are byte-level BPE.
            vocab_type=xgrammar.VocabType.BYTE_LEVEL,
            vocab_size=padded_vocab_size(model_dir),
            stop_token_ids=ends if isinstance(ends, list) else [ends],
        )
        info = hide_controls(info, tokenizer.controls)
        # As vLLM's own (v1/structured_output/backend_xgrammar.py, 0.32).
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=8, cache_enabled=True)
        self._new_matcher = xgrammar.GrammarMatcher
        self._parse = xgrammar.Grammar.from_ebnf
        self._compiled: OrderedDict[str, Any] = OrderedDict()

    def compile_s(self, ebnf: str) -> float:
        """Seconds to parse and compile a grammar; parts of earlier ones may be kept."""
        started = time.perf_counter()
        self._compiler.compile_grammar(self._parse(ebnf))
        return time.perf_counter() - started

    def first_refused(self, ebnf: str, token_ids: Sequence[int]) -> int | None:
        """The place of the first token that the mask would not allow, None when all are allowed."""
        if ebnf not in self._compiled:
            self._compiled[ebnf] = self._compiler.compile_grammar(self._parse(ebnf))
            if len(self._compiled) > MOST_KEPT:
                self._compiled.popitem(last=False)
        state = self._new_matcher(self._compiled[ebnf])
        for at, token_id in enumerate(token_ids):
            if not state.accept_token(token_id):
                return at
        return None
