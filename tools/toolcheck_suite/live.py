"""Requests that any model must answer by the rules: choices, schemas, structure, history.

The prompts ask for what the request allows, so that a capable model also decides each check; a
model that cannot follow them still has to keep every rule.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

from toolcheck_suite.cases import FOLDER, load, read_yaml, tool
from toolcheck_suite.probing import Probe

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 30}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = tool("get_weather", CITY, description="The weather in a city")
CLOCK = tool("get_time", {"type": "object", "properties": {}}, description="The time now")
ANSWER = {
    "type": "object",
    "properties": {
        "answer": {"type": "string", "maxLength": 40},
        "confidence": {"type": "string", "enum": ["low", "high"]},
    },
    "required": ["answer", "confidence"],
    "additionalProperties": False,
}


def probes() -> Iterator[Probe]:
    """All of them, the cheap and telling ones first."""
    yield from choices()
    yield from schemas()
    yield from structures()
    yield from histories()


def choices() -> Iterator[Probe]:
    """tool_choice and parallel_tool_calls."""
    both = [WEATHER, CLOCK]
    ask = said("What is the weather in Paris and in Rome? Use the tools.")
    named = {"type": "function", "function": {"name": "get_weather"}}
    wishes: dict[str, dict[str, Any]] = {
        "default": {},
        "auto": {"tool_choice": "auto"},
        "auto, nothing to call": {"tool_choice": "auto", "messages": said("Say hello.")},
        "none": {"tool_choice": "none"},
        "required": {"tool_choice": "required"},
        "required, nothing to call": {"tool_choice": "required", "messages": said("Say hello.")},
        "named": {"tool_choice": named},
        "named, against the question": {
            "tool_choice": {"type": "function", "function": {"name": "get_time"}}
        },
        "parallel off": {"tool_choice": "auto", "parallel_tool_calls": False},
        "required, parallel off": {"tool_choice": "required", "parallel_tool_calls": False},
        "required, parallel on": {"tool_choice": "required", "parallel_tool_calls": True},
        "not strict": {
            "tool_choice": "required",
            "tools": [tool("get_weather", CITY, strict=False)],
        },
        "strict": {"tool_choice": "required", "tools": [tool("get_weather", CITY, strict=True)]},
        "a tool without parameters": {
            "tool_choice": "required",
            "tools": [{"type": "function", "function": {"name": "ping"}}],
        },
    }
    for name, wish in wishes.items():
        yield Probe("choices", name, {"tools": both, "messages": ask, **wish})


def schemas() -> Iterator[Probe]:
    """One forced call for each schema of live_schemas.yaml, from plain types to recursion."""
    for entry in live_schemas():
        yield Probe(
            "schemas",
            entry["name"],
            {
                "messages": said(f"Call the tool once. {entry.get('ask', 'Make values up.')}"),
                "tools": [tool("record", entry["schema"], description="Keeps what it is given")],
                "tool_choice": {"type": "function", "function": {"name": "record"}},
            },
        )


def structures() -> Iterator[Probe]:
    """response_format, alone and beside tools."""
    ask = said("Is the sky blue? Answer in JSON, with a short answer.")
    answer = {"type": "json_schema", "json_schema": {"name": "answer", "schema": ANSWER}}
    items = {
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        },
        "required": ["items"],
        "additionalProperties": False,
    }
    yield Probe("structures", "text", {"messages": ask, "response_format": {"type": "text"}})
    yield Probe(
        "structures",
        "json_object",
        {"messages": ask, "response_format": {"type": "json_object"}},
    )
    yield Probe("structures", "json_schema", {"messages": ask, "response_format": answer})
    yield Probe(
        "structures",
        "json_schema of an array",
        {
            "messages": said("Name three numbers in JSON."),
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "items", "schema": items, "strict": True},
            },
        },
    )
    yield Probe(
        "structures",
        "json_schema or a call",
        {"messages": ask, "response_format": answer, "tools": [CLOCK]},
    )
    yield Probe(
        "structures",
        "json_schema and a required call",
        {
            "messages": ask,
            "response_format": answer,
            "tools": [CLOCK],
            "tool_choice": "required",
        },
    )


def histories() -> Iterator[Probe]:
    """Conversations with earlier calls, as the cases write them."""
    for case in load():
        if case.group == "history":
            yield Probe("history", case.id, {**case.request, "tool_choice": "auto"})


@cache
def live_schemas() -> tuple[dict[str, Any], ...]:
    """Schemas with an instance that fits and one that does not."""
    return tuple(read_yaml(FOLDER / "live_schemas.yaml"))


def said(text: str) -> list[dict[str, str]]:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]
