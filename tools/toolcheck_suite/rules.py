"""The rules of an answer, and the verdict on one by the request alone.

Everything is judged with the client's own schemas (jsonschema, the dialect they name), never with
what the server says about itself.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema
from jsonschema.validators import validator_for

from toolcheck_suite.answers import Answer, CallReply

RULES = {
    "R0": "a request that is right gets an answer, formed as OpenAI forms it",
    "R1": "a delivered call names a declared tool and its arguments validate against its schema;"
    " else the client gets an error, never a success without the call",
    "R2": "strings are byte for byte what the model wrote, other values the JSON it wrote",
    "R3": "streamed and whole answers are the same, and streamed arguments parse",
    "R4": "the markup of calls never shows in content, reasoning, names or arguments",
    "R5": "an unfinished call is never delivered as a finished one; the finish reason is true",
    "R6": "tool_choice and parallel_tool_calls hold",
    "R7": "a bad request is a 400 that names the field at fault",
}
MARKUP = (
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "</think>",
    "<|tool_call",
    "<｜tool▁call",
    "<｜DSML｜",
    "[TOOL_CALLS]",
    "<|python_tag|>",
    "</function>",
    "</parameter>",
)
"""Tags of the known families; a model that was not asked for them has no cause to write one."""


@dataclass(frozen=True)
class Broken:
    """A rule that an answer breaks."""

    rule: str
    expected: str
    came: str


def judge(request: Mapping[str, Any], answer: Answer) -> list[Broken]:
    """Every rule that this answer breaks, as far as one answer can show it."""
    if answer.error is not None:
        return [Broken("R0", "status 200", answer.shown())]
    broken = [Broken("R0", "OpenAI's form", problem) for problem in answer.malformed]
    broken += _calls(request, answer)
    broken += _choice(request, answer)
    broken += _finish(request, answer)
    broken += _content(request, answer)
    return broken


def differences(one: Answer, other: Answer) -> list[Broken]:
    """Where two answers to the same request differ (R3)."""
    first, second = one.comparable(), other.comparable()
    return [
        Broken("R3", f"whole: {name}={first[name]!r}", f"streamed: {name}={second[name]!r}")
        for name in first
        if first[name] != second[name]
    ]


def arguments_at_fault(schema: Any, arguments: str) -> str | None:
    """Why these arguments are none for this schema, None when they are."""
    try:
        value = json.loads(
            arguments, object_pairs_hook=_unique, parse_constant=_no_json, parse_float=_Lexeme
        )
    except ValueError as error:
        return f"no JSON: {error}"
    if not isinstance(value, dict):
        return f"no object: {arguments[:100]}"
    return value_at_fault(schema, value)


def value_at_fault(schema: Any, value: Any) -> str | None:
    """Why jsonschema refuses this value, None when it does not."""
    validator = _validator(schema if schema is not None else {"type": "object"})
    error = jsonschema.exceptions.best_match(validator.iter_errors(value))
    return None if error is None else f"{error.json_path}: {error.message[:200]}"


class _Lexeme(float):
    """A number that was written with a fraction or an exponent: never an integer."""

    def is_integer(self) -> bool:
        return False


def _validator(schema: Any) -> Any:
    kind: Any = validator_for(schema, default=jsonschema.Draft202012Validator)
    return kind(schema)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ValueError(f"a key is there twice: {sorted(keys)}")
    return dict(pairs)


def _no_json(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _calls(request: Mapping[str, Any], answer: Answer) -> Iterator[Broken]:
    tools = {tool["function"]["name"]: tool["function"] for tool in request.get("tools", ())}
    for call in answer.calls:
        if call.name not in tools:
            yield Broken("R1", f"a tool of {sorted(tools)}", _shown(call))
            continue
        fault = arguments_at_fault(tools[call.name].get("parameters"), call.arguments)
        if fault is not None and not _is_cut_in_a_stream(answer, call):
            yield Broken("R1", f"arguments that fit {call.name}", f"{_shown(call)}: {fault}")


def _is_cut_in_a_stream(answer: Answer, call: CallReply) -> bool:
    """A stream may hold the beginning of a last call, where finish says that a limit cut it."""
    is_last = call is answer.calls[-1]
    return answer.is_stream and answer.finish == "length" and is_last


def _choice(request: Mapping[str, Any], answer: Answer) -> Iterator[Broken]:
    choice = request.get("tool_choice", "auto")
    names = [call.name for call in answer.calls]
    if choice == "none" and names:
        yield Broken("R6", "no call, tool_choice is none", str(names))
    if answer.finish != "length" and choice not in ("auto", "none") and not names:
        yield Broken("R6", f"a call, tool_choice is {choice}", answer.shown())
    if isinstance(choice, dict) and any(name != choice["function"]["name"] for name in names):
        yield Broken("R6", f"calls of {choice['function']['name']} only", str(names))
    if request.get("parallel_tool_calls") is False and len(names) > 1:
        yield Broken("R6", "at most one call, parallel_tool_calls is false", str(names))


def _finish(request: Mapping[str, Any], answer: Answer) -> Iterator[Broken]:
    is_named = isinstance(request.get("tool_choice"), dict)
    if answer.finish not in ("stop", "length", "tool_calls"):
        yield Broken("R5", "finish_reason stop, length or tool_calls", str(answer.finish))
    if answer.finish == "tool_calls" and not answer.calls:
        yield Broken("R5", "calls with finish_reason tool_calls", answer.shown())
    if answer.finish == "stop" and answer.calls and not is_named:
        yield Broken("R5", "finish_reason tool_calls with calls", answer.shown())


def _content(request: Mapping[str, Any], answer: Answer) -> Iterator[Broken]:
    for name, text in (("content", answer.content), ("reasoning", answer.reasoning)):
        for tag in MARKUP:
            if tag in text:
                yield Broken("R4", f"no {tag} in {name}", repr(text[:300]))
    for call in answer.calls:
        if any(tag in call.name + call.arguments for tag in MARKUP):
            yield Broken("R4", "no markup in a call", _shown(call))
    structure = request.get("response_format") or {}
    if answer.calls or answer.finish == "length" or structure.get("type", "text") == "text":
        return
    schema = structure.get("json_schema", {}).get("schema", {"type": "object"})
    try:
        value = json.loads(
            answer.content, object_pairs_hook=_unique, parse_constant=_no_json, parse_float=_Lexeme
        )
    except ValueError as error:
        yield Broken(
            "R1", "JSON content, response_format asks for it", f"{answer.content!r}: {error}"
        )
        return
    if (fault := value_at_fault(schema, value)) is not None:
        yield Broken("R1", "content that fits response_format", f"{answer.content!r}: {fault}")


def _shown(call: CallReply) -> str:
    return f"{call.name}({call.arguments})"
