"""A text on the wire, both ways, without a model: does the grammar accept it, what is parsed?

The vocabulary is the smallest that spells every text: 256 bytes, the control tokens of the formats
as tokens of their own, and one end token. A grammar compiles for it in about a millisecond, and
xgrammar's matcher walks the same automaton as with a real one.
"""

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolcall.errors import Fault
from toolcall.events import ArgumentsDelta, CallStarted, ContentDelta, Finished, FinishReason
from toolcall.formats.render import render_calls
from toolcall.formats.table import WireFormat
from toolcall.grammar.build import Grammar, build
from toolcall.guard import Guard
from toolcall.marks import Marks
from toolcall.parser.parser import Parser
from toolcall.plan import OutputPlan

CONTROLS = (
    "<|user|>",
    "<|observation|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
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
)
FIRST_CONTROL = 256
END = FIRST_CONTROL + len(CONTROLS)
MARKS = Marks({FIRST_CONTROL + at: text for at, text in enumerate(CONTROLS)} | {END: "<|end|>"})
RUNS = re.compile("[\ud800-\udfff]|[^\ud800-\udfff]+")

Call = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Read:
    """What a text came to; `calls` hold the arguments as the JSON text that a client gets."""

    content: str
    calls: tuple[tuple[str, str], ...]
    finish: FinishReason | None
    fault: Fault | None


def grammar_of(plan: OutputPlan, tool_format: WireFormat | None) -> Grammar:
    """The grammar of an answer whose reasoning is over."""
    return build(plan, tool_format, MARKS, "after_reasoning", effort="full")


def write(tool_format: WireFormat, calls: Sequence[Call]) -> str:
    """The calls as the model would write them, control tokens as marks."""
    return MARKS.encode(render_calls(tool_format, calls))


def matcher(ebnf: str) -> Any:
    """xgrammar's compiled grammar; raises RuntimeError where it does not compile."""
    return _compiler().compile_grammar(ebnf)


def accepts(compiled: Any, text: str) -> bool:
    """True when the whole text, and then the end of the answer, is allowed."""
    import xgrammar

    state = xgrammar.GrammarMatcher(compiled)
    for run in RUNS.findall(text):
        token = FIRST_CONTROL + ord(run) - 0xD800 if "\ud800" <= run[0] <= "\udfff" else None
        if token is not None:
            passed = state.accept_token(token)
        else:
            passed = state.accept_string(run.encode())
        if not passed:
            return False
    return bool(state.accept_token(END))


def read(plan: OutputPlan, tool_format: WireFormat | None, text: str, live: frozenset[str]) -> Read:
    """The parser's and the guard's word on a text that comes in small pieces."""
    parser = Parser(plan, tool_format, MARKS, "after_reasoning", Guard(plan), live)
    content, finish, fault = "", None, None
    calls: list[list[str]] = []
    events = [event for piece in _pieces(text) for event in parser.push(piece)]
    for event in (*events, *parser.finish("stop")):
        match event:
            case ContentDelta(more):
                content += more
            case CallStarted(_, name):
                calls.append([name, ""])
            case ArgumentsDelta(index, more):
                calls[index][1] += more
            case Finished(reason):
                finish = reason
            case Fault():
                fault = event
    return Read(content, tuple((name, text) for name, text in calls), finish, fault)


def same_json(left: Any, right: Any) -> bool:
    """Equal values of equal types: 1 and 1.0 differ, the order of keys does not count."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def _pieces(text: str) -> Iterator[str]:
    """Pieces of one to four characters, about what tokens are."""
    at = 0
    while at < len(text):
        size = 1 + at % 4
        yield text[at : at + size]
        at += size


@functools.cache
def _compiler() -> Any:
    import xgrammar

    vocabulary = [bytes([byte]) for byte in range(FIRST_CONTROL)]
    vocabulary += [b"\xff" + text.encode() for text in CONTROLS] + [b"\xff<|end|>"]
    info = xgrammar.TokenizerInfo(vocabulary, vocab_size=len(vocabulary), stop_token_ids=[END])
    return xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
