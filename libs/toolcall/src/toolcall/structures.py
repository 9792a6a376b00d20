"""The structure that a client wants its answer in: OpenAI's response_format, vLLM's own fields."""

import json
import re
from collections.abc import Mapping
from typing import Any

from toolcall.json_values import Limits, check_json
from toolcall.plan import Structure
from toolcall.refusals import kind, refusal, shown
from toolcall.schema.check import check_strict, checked_schema
from toolcall.schema.normalise import normalise
from toolcall.schema.patterns import MOST_PATTERN, fault_of

ANY_OBJECT = {"type": "object"}
"""What response_format json_object asks for."""
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
SERVED = ("json", "regex", "choice", "json_object")
"""Constraints of vLLM's structured_outputs; the others would change the answer, so are refused."""
CHOICES = Limits(depth=2, values=1_001, characters=100_000, patterns=0)
"""A thousand choices, in a list."""


def response_structure(response_format: Any) -> Structure | None:
    """The structure of a response_format. Raises InvalidToolRequest."""
    if response_format is None:
        return None
    if not isinstance(response_format, dict):
        raise refusal("response_format", "an object", kind(response_format))
    match response_format.get("type"):
        case "text":
            return None
        case "json_object":
            return Structure("json", normalise(ANY_OBJECT))
        case "json_schema":
            return _json_schema(response_format.get("json_schema"), "response_format.json_schema")
        case other:
            raise refusal(
                "response_format.type", '"text", "json_object" or "json_schema"', shown(other)
            )


def guided_structure(guided: Mapping[str, Any]) -> Structure | None:
    """The structure of vLLM's fields, of which one may be sent. Raises InvalidToolRequest."""
    wanted = {}
    for name, value in guided.items():
        if value is None:
            continue
        if name == "structured_outputs":
            wanted.update(_structured_outputs(value))
        elif name in ("guided_json", "guided_regex", "guided_choice"):
            wanted[name] = (name.removeprefix("guided_"), value)
        else:
            raise refusal(name, "nothing", "a field that is not served", "Leave it out.")
    if not wanted:
        return None
    first, *others = wanted
    if others:
        raise refusal(others[0], "one structure", f"another one in {first}", "Send one of them.")
    constraint, value = wanted[first]
    return _structure(constraint, value, first)


def check_name(name: Any, param: str) -> str:
    """The name of a tool or a schema. Raises InvalidToolRequest."""
    if not isinstance(name, str) or not NAME.match(name):
        raise refusal(param, "a name of 1 to 64 letters, digits, _ and -", kind(name))
    return name


def _json_schema(wanted: Any, param: str) -> Structure:
    if not isinstance(wanted, dict):
        raise refusal(param, 'an object {"name": ..., "schema": ...}', kind(wanted))
    check_name(wanted.get("name"), f"{param}.name")
    strict = wanted.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise refusal(f"{param}.strict", "true or false", kind(strict))
    source = wanted.get("schema")
    if not isinstance(source, dict):
        raise refusal(f"{param}.schema", "a JSON Schema (an object)", kind(source))
    schema = checked_schema(source, f"{param}.schema")
    if strict:
        check_strict(source, f"{param}.schema")
    return Structure("json", schema)


def _structured_outputs(value: Any) -> dict[str, tuple[str, Any]]:
    if not isinstance(value, dict):
        raise refusal("structured_outputs", "an object", kind(value))
    wanted = {}
    for name, constraint in value.items():
        param = f"structured_outputs.{name}"
        if constraint is None or constraint is False:
            continue
        if name not in SERVED:
            raise refusal(param, f"one of {', '.join(SERVED)}", f"{name}, which is not served")
        wanted[param] = (name, constraint)
    if not wanted:
        raise refusal("structured_outputs", f"one of {', '.join(SERVED)}", "none of them")
    return wanted


def _structure(constraint: str, value: Any, param: str) -> Structure:
    match constraint:
        case "json":
            return _guided_json(value, param)
        case "regex":
            return Structure("regex", pattern=_pattern(value, param))
        case "choice":
            return Structure("choice", choices=_choices(value, param))
        case _:
            if value is not True:
                raise refusal(param, "true or false", kind(value))
            return Structure("json", normalise(ANY_OBJECT))


def _guided_json(value: Any, param: str) -> Structure:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise refusal(param, "a JSON Schema, or one as JSON text", shown(value)) from error
    return Structure("json", checked_schema(value, param))


def _pattern(value: Any, param: str) -> str:
    if not isinstance(value, str) or not value:
        raise refusal(param, "a regular expression", kind(value))
    if len(value) > MOST_PATTERN:
        raise refusal(param, f"at most {MOST_PATTERN:,} characters", f"{len(value):,}")
    check_json(value, param)
    advice = fault_of(value, is_whole=True)
    if advice is not None:
        raise refusal(param, "a regular expression in Python's dialect", shown(value), advice)
    return value


def _choices(value: Any, param: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise refusal(param, "a list of at least one string", kind(value))
    check_json(value, param, CHOICES)
    for at, each in enumerate(value):
        if not isinstance(each, str) or not each:
            raise refusal(f"{param}[{at}]", "a string that is not empty", kind(each))
    return tuple(dict.fromkeys(value))
