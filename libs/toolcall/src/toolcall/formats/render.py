"""Calls as a model would write them: the parser's inverse, for tests, fuzzing and benchmarks."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from toolcall.errors import ToolCallError
from toolcall.formats.table import JsonArguments, JsonCall, TaggedArguments, WireFormat


def render_calls(format: WireFormat, calls: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """The calls with what stands around and between them; nothing for no calls."""
    texts = [
        render_call(format, name, arguments, number)
        for number, (name, arguments) in enumerate(calls)
    ]
    if not texts:
        return ""
    return format.section_open + format.separator.join(texts) + format.section_close


def render_call(
    format: WireFormat, name: str, arguments: Mapping[str, Any], number: int = 0
) -> str:
    """One call, tags as plain text (`Marks.encode` makes marks of them).

    Raises ToolCallError for a string that would end at a closing literal inside it.
    """
    match format.arguments:
        case JsonCall(name_key, arguments_key):
            body = _json({name_key: name, arguments_key: arguments})
            return f"{format.call_open}{body}{format.call_close}"
        case JsonArguments():
            body = _json(arguments)
        case TaggedArguments() as form:
            body = "".join(_argument(form, key, value) for key, value in arguments.items())
    if format.number_open is not None:
        name = f"{name}{format.number_open}{number}"
    return f"{format.call_open}{name}{format.name_close}{body}{format.call_close}"


def _argument(form: TaggedArguments, key: str, value: object) -> str:
    is_string = isinstance(value, str)
    text = value if isinstance(value, str) else _json(value)
    if is_string and (text + form.string_end).find(form.string_end) < len(text):
        raise ToolCallError(f"expected a string without {form.string_end!r}: argument {key!r}")
    key_close = form.key_close
    if form.type_tags is not None:
        key_close = form.type_tags[0 if is_string else 1]
    return f"{form.key_open}{key}{key_close}{text}{form.value_close}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
