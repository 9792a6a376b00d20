"""Two things that vLLM's grammars must do for ours, hooked into vLLM 0.32 as a general plugin.

Control tokens are no text: in xgrammar's vocabulary they get bytes that no text can have, so that
only `Token(id)` in a grammar matches them. And a grammar may begin behind a part of the answer: one
that another worker had begun, or that a retry keeps.

Invariant: a request with a grammar is masked by it from its first sampled token, or fails. vLLM
only logs a plugin that cannot be loaded, so a worker asks `missing_hooks` before it takes requests;
each hook also tells whether upstream is still what it was written for, and a test runs that.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import GrammarPrefixRefused
from toolcall.compiling.tokens import hide_controls
from toolcall.marks import control_tokens

PREFIX_KEY = "grammar_prefix_tokens"
"""In a request's extra_args: so many last tokens of its prompt were generated under its grammar."""
COMPILE_THREADS = 8
"""vLLM's own number (backend_xgrammar.py, XgrammarBackend.__post_init__)."""
SMALLEST_GRAMMAR = 'root ::= "a"'


@dataclass(frozen=True)
class GrammarHook:
    """One change to vLLM; `fits` is False when upstream is not what it was written for."""

    name: str
    upstream: str
    fits: Callable[[], bool]
    is_installed: Callable[[], bool]
    install: Callable[[], None]


def install() -> None:
    """The plugin's entry point; installing twice is the same as once."""
    for hook in HOOKS:
        if not hook.is_installed():
            hook.install()


def missing_hooks() -> list[str]:
    """What is not installed in this process, by name."""
    return [hook.name for hook in HOOKS if not hook.is_installed()]


def prefix_tokens(extra_args: Mapping[str, Any] | None, prompt_tokens: int) -> int:
    """How many last prompt tokens the grammar has behind it. Raises ValueError if it cannot be."""
    count = (extra_args or {}).get(PREFIX_KEY) or 0
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= prompt_tokens:
        raise ValueError(
            f"{PREFIX_KEY} must be a number of the prompt's {prompt_tokens} tokens, got {count!r}"
        )
    return count


def _backend() -> Any:
    from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend

    return XgrammarBackend


def _manager() -> Any:
    from vllm.v1.structured_output import StructuredOutputManager

    return StructuredOutputManager


def _source(method: Any) -> str:
    return inspect.getsource(inspect.unwrap(method))


def _backend_builds_one_compiler() -> bool:
    source = _source(_backend().__post_init__)
    return (
        source.count("self.compiler = ") == 1
        and f"max_threads={COMPILE_THREADS}," in source
        and "VLLM_XGRAMMAR_CACHE_MB * 1024 * 1024" in source
    )


def _hide_control_tokens() -> None:
    stock = _backend().__post_init__

    @functools.wraps(stock)
    def post_init(backend: Any) -> None:
        stock(backend)
        backend.compiler = _compiler_without_controls(backend)

    post_init.hides_controls = True  # type: ignore[attr-defined]
    _backend().__post_init__ = post_init


def _compiler_without_controls(backend: Any) -> Any:
    """A compiler like the backend's own, for the same tokenizer with its control tokens hidden."""
    import xgrammar
    from vllm import envs

    added = backend.tokenizer.added_tokens_decoder.items()
    controls = control_tokens(
        {"id": token_id, "content": token.content, "special": token.special}
        for token_id, token in added
    )
    # The compiler does not give its tokenizer out, but every grammar that it compiled does.
    info = backend.compiler.compile_grammar(SMALLEST_GRAMMAR).tokenizer_info
    return xgrammar.GrammarCompiler(
        hide_controls(info, controls),
        max_threads=COMPILE_THREADS,
        cache_enabled=True,
        cache_limit_bytes=envs.VLLM_XGRAMMAR_CACHE_MB * 1024 * 1024,
    )


def _manager_creates_each_grammar_afresh() -> bool:
    source = _source(_manager()._create_grammar)
    return (
        "request.structured_output_request" in source
        and "self.backend.compile_grammar(" in source
        # Its errors must reach the scheduler as the request's own.
        and "self.executor.submit(self._create_grammar, request)"
        in inspect.getsource(_manager().grammar_init)
    )


def _begin_behind_prefixes() -> None:
    stock = _manager()._create_grammar

    @functools.wraps(stock)
    def create_grammar(manager: Any, request: Any) -> Any:
        grammar = stock(manager, request)
        _accept_prefix(grammar, request)
        return grammar

    create_grammar.begins_behind_prefixes = True  # type: ignore[attr-defined]
    _manager()._create_grammar = create_grammar


def _accept_prefix(grammar: Any, request: Any) -> None:
    """Moves a new grammar behind the request's prefix. Raises GrammarPrefixRefused.

    vLLM does not mask at all once a grammar has terminated (vllm/v1/structured_output/__init__.py,
    _fill_bitmasks), so a prefix that holds a stop token is refused like any other wrong one.
    """
    from vllm.logger import init_logger

    prompt = request.prompt_token_ids or []
    count = prefix_tokens(request.sampling_params.extra_args, len(prompt))
    for place, token_id in enumerate(prompt[len(prompt) - count :]):
        is_accepted = grammar.accept_tokens(request.request_id, [token_id])
        if not is_accepted or grammar.is_terminated():
            error = GrammarPrefixRefused(count, place, token_id)
            # Nobody else writes it down: the scheduler only sees that there is an exception.
            init_logger("vllm.plugins.millrace").error("%s: %s", request.request_id, error)
            raise error


HOOKS = (
    GrammarHook(
        "control_tokens_are_no_text",
        "vllm/v1/structured_output/backend_xgrammar.py, XgrammarBackend.__post_init__: builds the"
        " compiler from TokenizerInfo.from_huggingface, where a control token is its text (0.32)",
        fits=_backend_builds_one_compiler,
        is_installed=lambda: hasattr(_backend().__post_init__, "hides_controls"),
        install=_hide_control_tokens,
    ),
    GrammarHook(
        "grammars_begin_behind_a_prefix",
        "vllm/v1/structured_output/__init__.py, StructuredOutputManager._create_grammar: makes the"
        " matcher of one request, always at the grammar's beginning (0.32)",
        fits=_manager_creates_each_grammar_afresh,
        is_installed=lambda: hasattr(_manager()._create_grammar, "begins_behind_prefixes"),
        install=_begin_behind_prefixes,
    ),
)
