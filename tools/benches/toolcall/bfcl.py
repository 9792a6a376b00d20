"""BFCL's expected calls, written as a model would, accepted by the grammar and parsed back equal.

Function names lose their dots and types become JSON Schema's. Every question with expected calls
counts; one that cannot be asked this way is excluded by a named reason.
"""

import collections
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jsonschema

from benches.report import Figure
from benches.toolcall import fetch, wire
from toolcall.errors import InvalidToolRequest
from toolcall.formats.detect import by_name
from toolcall.requests import plan_output

CATEGORIES = (
    "simple_python",
    "simple_java",
    "simple_javascript",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
)
FORMATS = ("glm47", "glm45", "hermes")
TYPES = {
    "dict": "object",
    "HashMap": "object",
    "float": "number",
    "double": "number",
    "long": "integer",
    "tuple": "array",
    "list": "array",
    "Array": "array",
    "ArrayList": "array",
    "String": "string",
    "char": "string",
    "Boolean": "boolean",
    "bool": "boolean",
    "any": "string",
    "": "string",
}
"""BFCL's type names in JSON Schema's (bfcl_eval/constants/type_mappings.py); others stay."""
LEFT_OUT = object()
MISFIT = "the expected answer breaks its own schema"
UNDECLARED = "the expected answer has a key that its schema does not declare (tools are closed)"


class Excluded(Exception):
    """A question that cannot be asked as it is; the message is the reason."""


@dataclass(frozen=True)
class Case:
    """One question."""

    name: str
    tools: list[dict[str, Any]]
    calls: list[wire.Call]


def figures(samples: int | None = None) -> list[Figure]:
    """Answers that come back equal, in three formats, and how many questions were excluded."""
    excluded: collections.Counter[str] = collections.Counter()
    failures: list[str] = []
    done = 0
    with fetch.bfcl() as data:
        for case in cases(data, excluded, samples):
            for name in FORMATS:
                done += 1
                if fault := _fault(case, name):
                    failures.append(f"{case.name} in {name}: {fault}")
    for failure in failures:
        print(f"bfcl: {failure}")
    percent = 100 * (done - len(failures)) / max(done, 1)
    reasons = "; ".join(f"{count} {reason}" for reason, count in excluded.most_common())
    return [
        Figure(
            "bfcl_answers_equal",
            percent if failures else 100.0,
            "%",
            "= 100",
            not failures and done > 0,
            f"{done} round trips of {done // len(FORMATS)} questions in {', '.join(FORMATS)}",
        ),
        Figure("bfcl_questions_excluded", excluded.total(), "", "named", True, reasons),
    ]


def cases(
    data: fetch.BfclData, excluded: "collections.Counter[str]", samples: int | None
) -> Iterator[Case]:
    """The questions, so many of each category; `excluded` counts the reasons of the others."""
    for category in CATEGORIES:
        answers = data.answers(category)
        for question in data.questions(category)[:samples]:
            try:
                yield _case(question, answers[question["id"]])
            except Excluded as reason:
                excluded[str(reason)] += 1


def _case(question: dict[str, Any], answer: list[dict[str, Any]]) -> Case:
    tools = [_tool(function) for function in question["function"]]
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    calls: list[wire.Call] = []
    for expected in answer:
        ((name, allowed),) = expected.items()
        schema = schemas[name.replace(".", "_")]
        chosen = {key: _argument(schema, key, value) for key, value in allowed.items()}
        arguments = {key: value for key, value in chosen.items() if value is not LEFT_OUT}
        if not jsonschema.Draft202012Validator(schema).is_valid(arguments):
            raise Excluded(MISFIT)
        if not jsonschema.Draft202012Validator(_closed(schema)).is_valid(arguments):
            raise Excluded(UNDECLARED)
        calls.append((name.replace(".", "_"), arguments))
    return Case(question["id"], tools, calls)


def _fault(case: Case, format_name: str) -> str | None:
    tool_format = by_name(format_name)
    try:
        plan = plan_output(
            tools=case.tools,
            tool_choice="required",
            parallel_tool_calls=True,
            response_format=None,
        )
    except InvalidToolRequest as error:
        return f"the request was refused: {error}"
    text = wire.write(tool_format, case.calls)
    grammar = wire.grammar_of(plan, tool_format)
    if not wire.accepts(wire.matcher(grammar.ebnf), text):
        return f"the grammar refuses {text[:300]!r}"
    read = wire.read(plan, tool_format, text, grammar.exact_tools)
    if read.fault is not None or read.content:
        return f"fault {read.fault}, content {read.content!r}"
    parsed = [(name, json.loads(arguments)) for name, arguments in read.calls]
    if not wire.same_json(parsed, [list(call) for call in case.calls]):
        return f"expected {case.calls}, got {parsed}"
    return None


def _tool(function: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": function["name"].replace(".", "_"),
            "description": function.get("description", ""),
            "parameters": _schema(function["parameters"]),
        },
    }


def _schema(source: Any) -> Any:
    """BFCL's flavour of JSON Schema as JSON Schema."""
    schema = {key: source[key] for key in ("description", "enum", "required") if key in source}
    kind = source.get("type", "")
    schema["type"] = TYPES.get(kind, kind)
    if isinstance(source.get("properties"), dict):
        schema["properties"] = {name: _schema(part) for name, part in source["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(source.get(key), dict):
            schema[key] = _schema(source[key])
    return schema


def _closed(schema: Any) -> Any:
    """The schema without keys beyond those that its objects declare."""
    closed = dict(schema)
    if "properties" in schema:
        parts = schema["properties"].items()
        closed |= {"properties": {name: _closed(part) for name, part in parts}}
        closed.setdefault("additionalProperties", False)
    if "items" in schema:
        closed["items"] = _closed(schema["items"])
    return closed


def _argument(schema: Any, key: str, allowed: list[Any]) -> Any:
    """The first allowed value that fits the schema; an empty text or None stands for the default.

    Raises Excluded where no allowed value fits.
    """
    part = schema["properties"].get(key, False)
    for value in (_inner(value) for value in allowed if value != ""):
        if jsonschema.Draft202012Validator(part).is_valid(value):
            return value
    if "" in allowed or None in allowed:
        return LEFT_OUT
    raise Excluded(MISFIT)


def _inner(value: Any) -> Any:
    """A value whose objects may still list the allowed values of a key."""
    if isinstance(value, dict):
        chosen = {key: _option(options) for key, options in value.items()}
        return {key: _inner(option) for key, option in chosen.items() if option is not LEFT_OUT}
    if isinstance(value, list):
        return [_inner(part) for part in value]
    return value


def _option(options: Any) -> Any:
    if not isinstance(options, list):
        return options
    return next((option for option in options if option != ""), LEFT_OUT)
