"""JSON values: which are the same by JSON Schema, and how they are written."""

import json
from typing import Any


def identity(value: Any) -> object:
    """Something hashable that is equal for the same JSON values: 1 and 1.0, but not 1 and true."""
    match value:
        case bool():
            return ("boolean", value)
        case float() if value.is_integer():
            return int(value)
        case list():
            return ("array", *(identity(each) for each in value))
        case dict():
            return ("object", frozenset((name, identity(each)) for name, each in value.items()))
        case _:
            return value


def text_of(value: Any) -> str:
    """The value as JSON text, as a model would write it."""
    return json.dumps(value, ensure_ascii=False)


def type_of(value: Any) -> str:
    """The type of a value as schema/plain.py counts types: a fraction is a number that is none."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "fraction"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"
