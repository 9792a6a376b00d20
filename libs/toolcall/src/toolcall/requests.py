"""What a client asks for, checked: tools, choice and structure as an OutputPlan.

Invariant: a request that gets through can be served as it is: its schemas are sound, its names are
declared, nothing in it is ignored that would change the answer. Everything else is refused with
the path of the fault before any model work.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, cast

from toolcall.history import check_history
from toolcall.json_values import SCHEMA, Limits, check_json
from toolcall.plan import OutputPlan, Tool, ToolChoice
from toolcall.refusals import kind, refusal, shorten, shown
from toolcall.schema.check import check_strict, checked_schema
from toolcall.schema.nodes import (
    Anything,
    Enum,
    Integer,
    Node,
    Nothing,
    Object,
    Schema,
    Union,
)
from toolcall.schema.normalise import normalise
from toolcall.schema.tree import union
from toolcall.schema.work import MOST_STEPS, Work
from toolcall.structures import check_name, guided_structure, response_structure

__all__ = ["check_history", "plan_output"]

MOST_TOOLS = 128
"""OpenAI's limit; far more than any model chooses well among."""
ALL_TOOLS = Limits(depth=SCHEMA.depth + 4, values=50_000, characters=2_000_000, patterns=500)
"""A few seconds of CPU for the most that one request may ask to be checked and compiled; the
schemas stand four levels below the list."""
ALL_STEPS = 2 * MOST_STEPS
"""Two seconds for what all schemas together multiply."""
NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}
"""The schema of a tool that is declared without parameters."""
JSON_TYPES = frozenset(("null", "boolean", "number", "string", "array", "object"))
TYPE_OF_FIRST = {
    '"': "string",
    "[": "array",
    "{": "object",
    "f": "boolean",
    "n": "null",
    "t": "boolean",
}
"""The type of a JSON text by its first character; every other is a number's."""


def plan_output(
    *,
    tools: Any,
    tool_choice: Any,
    parallel_tool_calls: Any,
    response_format: Any,
    guided: Mapping[str, Any] | None = None,
) -> OutputPlan:
    """The plan for a request's fields, as decoded from JSON (None where a field is absent).

    `guided` holds vLLM's own fields: guided_json, guided_regex, guided_choice, structured_outputs.
    Raises InvalidToolRequest.
    """
    declared = _tools(tools)
    choice, allowed = _choice(tool_choice, declared)
    is_parallel = _is_parallel(parallel_tool_calls, declared)
    structure = response_structure(response_format)
    guided_field = next((name for name, value in (guided or {}).items() if value is not None), "")
    if structure is not None and guided_field:
        raise refusal(
            guided_field, "one structure", "another one in response_format", "Send one of them."
        )
    return OutputPlan(allowed, choice, is_parallel, structure or guided_structure(guided or {}))


def _tools(tools: Any) -> tuple[Tool, ...]:
    if tools is None:
        return ()
    if not isinstance(tools, list) or not tools:
        raise refusal(
            "tools", "a list of tools", kind(tools), "Leave it out for an answer without tools."
        )
    if len(tools) > MOST_TOOLS:
        raise refusal("tools", f"at most {MOST_TOOLS} tools", str(len(tools)))
    check_json(tools, "tools", ALL_TOOLS)
    places: dict[str, int] = {}
    found = []
    work = Work(ALL_STEPS)
    for at, tool in enumerate(tools):
        found.append(_tool(tool, f"tools[{at}]", work))
        first = places.setdefault(found[-1].name, at)
        if first != at:
            raise refusal(
                f"tools[{at}].function.name",
                "each name once",
                f"{found[-1].name}, the name of tools[{first}] too",
            )
    return tuple(found)


def _tool(tool: Any, param: str, work: Work) -> Tool:
    if not isinstance(tool, dict):
        raise refusal(param, "an object", kind(tool))
    if tool.get("type") != "function":
        raise refusal(f"{param}.type", '"function"', shown(tool.get("type")))
    function = tool.get("function")
    param = f"{param}.function"
    if not isinstance(function, dict):
        advice = "Name, description and parameters of the function stand in here."
        raise refusal(param, "an object", kind(function), advice)
    name = check_name(function.get("name"), f"{param}.name")
    description = function.get("description")
    if description is not None and not isinstance(description, str):
        raise refusal(f"{param}.description", "a string", kind(description))
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise refusal(f"{param}.strict", "true or false", kind(strict))
    schema = _parameters(function.get("parameters"), f"{param}.parameters", work, strict is True)
    return Tool(name, schema, tool, param, is_strict=strict is not False)


def _parameters(source: Any, param: str, work: Work, is_strict: bool) -> Schema:
    if source is None:
        return normalise(NO_ARGUMENTS, is_closed=True)
    if not isinstance(source, dict):
        raise refusal(
            param, "a JSON Schema of an object", kind(source), "Leave it out for no arguments."
        )
    schema = checked_schema(source, param, is_closed=True, work=work)
    if is_strict:
        check_strict(source, param)
    if _lists_no_arguments(source):
        return replace(schema, root=normalise(NO_ARGUMENTS, is_closed=True).root)
    return replace(schema, root=_only_objects(schema, param))


def _lists_no_arguments(source: Mapping[str, Any]) -> bool:
    """The usual way to declare a tool without arguments; deeper down it says "any object"."""
    remarks = ("$schema", "title", "description")
    said = {key: value for key, value in source.items() if key not in remarks and value != []}
    return said == {"type": "object", "properties": {}}


def _only_objects(schema: Schema, param: str) -> Node:
    """The root as arguments have it: objects. A root that says nothing of its type is one."""
    options = schema.root.options if isinstance(schema.root, Union) else (schema.root,)
    allowed = frozenset[str]().union(*(_types(option) for option in options))
    if allowed != {"object"} and allowed != JSON_TYPES:
        others = ", ".join(sorted(allowed - {"object"}))
        also = "also " if "object" in allowed else ""
        is_typed = isinstance(schema.source, dict) and "type" in schema.source
        raise refusal(
            f"{param}.type" if is_typed else param,
            "a schema that only objects satisfy (arguments are one)",
            f"one that {also}allows {others}",
            'Say "type": "object" at its root.',
        )
    return union(_objects_of(option) for option in options)


def _types(option: Node) -> frozenset[str]:
    """The JSON types that a root's option allows."""
    match option:
        case Anything():
            return JSON_TYPES
        case Enum(values):
            return frozenset(TYPE_OF_FIRST.get(text[0], "number") for text in values)
        case Integer():
            return frozenset(("number",))
        case Nothing():
            return frozenset()
        case _:
            return frozenset((type(option).__name__.lower(),))


def _objects_of(option: Node) -> Node:
    match option:
        case Anything():
            return Object()
        case Object():
            return option
        case Enum(values):
            kept = tuple(text for text in values if text.startswith("{"))
            return Enum(kept) if kept else Nothing()
        case _:
            return Nothing()


def _choice(choice: Any, tools: tuple[Tool, ...]) -> tuple[ToolChoice, tuple[Tool, ...]]:
    """The choice, and the tools that it leaves."""
    match choice:
        case None:
            return ToolChoice("auto" if tools else "none"), tools
        case "auto" | "none" if not tools:
            return ToolChoice("none"), tools
        case "auto" | "none" | "required":
            _need_tools(tools, shown(choice))
            return ToolChoice(cast(Literal["auto", "none", "required"], choice)), tools
        case {"type": "function"}:
            _need_tools(tools, "a function")
            return ToolChoice("named", _declared(choice, "tool_choice", tools)), tools
        case {"type": "allowed_tools"}:
            _need_tools(tools, "allowed tools")
            return _allowed(choice.get("allowed_tools"), tools)
        case _:
            raise refusal(
                "tool_choice",
                '"auto", "none", "required", {"type": "function", "function": {"name": ...}} or'
                ' {"type": "allowed_tools", ...}',
                shown(choice),
            )


def _need_tools(tools: tuple[Tool, ...], choice: str) -> None:
    if not tools:
        raise refusal(
            "tool_choice", "tools to choose from", f"{choice} without tools", "Send tools with it."
        )


def _declared(choice: Mapping[str, Any], param: str, tools: tuple[Tool, ...]) -> str:
    """The declared name in {"type": "function", "function": {"name": ...}}."""
    function = choice.get("function")
    if not isinstance(function, dict):
        raise refusal(f"{param}.function", 'an object {"name": ...}', kind(function))
    name = function.get("name")
    if not isinstance(name, str) or name not in {tool.name for tool in tools}:
        names = shorten(", ".join(tool.name for tool in tools), 200)
        raise refusal(f"{param}.function.name", f"a declared tool ({names})", shown(name))
    return name


def _allowed(allowed: Any, tools: tuple[Tool, ...]) -> tuple[ToolChoice, tuple[Tool, ...]]:
    param = "tool_choice.allowed_tools"
    if not isinstance(allowed, dict):
        raise refusal(param, 'an object {"mode": ..., "tools": [...]}', kind(allowed))
    mode = allowed.get("mode")
    if mode not in ("auto", "required"):
        raise refusal(f"{param}.mode", '"auto" or "required"', shown(mode))
    listed = allowed.get("tools")
    if not isinstance(listed, list) or not listed:
        raise refusal(f"{param}.tools", "a list of at least one tool", kind(listed))
    names = set()
    for at, each in enumerate(listed):
        if not isinstance(each, dict) or each.get("type") != "function":
            raise refusal(
                f"{param}.tools[{at}]",
                '{"type": "function", "function": {"name": ...}}',
                shown(each),
            )
        names.add(_declared(each, f"{param}.tools[{at}]", tools))
    return ToolChoice(mode), tuple(tool for tool in tools if tool.name in names)


def _is_parallel(value: Any, tools: tuple[Tool, ...]) -> bool:
    if value is None:
        return True
    if not isinstance(value, bool):
        raise refusal("parallel_tool_calls", "true or false", kind(value))
    if not tools:
        raise refusal("parallel_tool_calls", "tools with it", f"{shown(value)} without tools")
    return value
