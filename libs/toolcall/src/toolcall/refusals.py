"""How a refused request reads: where, what was expected, what came, what to do."""

import json
from typing import Any

from toolcall.errors import InvalidToolRequest

MOST_SHOWN = 80
"""Characters of a value that a message repeats."""

MOST_PATH = 500
"""Characters of a path: twenty levels of usual names. Thousands of paths are kept for one schema,
and a client's name may have 200,000 characters."""


def refusal(param: str, expected: str, got: str, advice: str = "") -> InvalidToolRequest:
    """The error of a request whose `param` is not what was expected."""
    message = f"{param}: expected {expected}, got {got}."
    return InvalidToolRequest(f"{message} {advice}".strip(), param)


def shown(value: Any, most: int = MOST_SHOWN) -> str:
    """A value as short JSON text, for messages."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return shorten(text, most)


def shorten(text: str, most: int) -> str:
    """The text, or its beginning and an ellipsis; without characters that have no encoding."""
    clean = text.encode("utf-8", "backslashreplace").decode()
    return clean if len(clean) <= most else f"{clean[: most - 3]}..."


def short_path(path: str) -> str:
    """The path, or its beginning and its end."""
    half = MOST_PATH // 2
    return path if len(path) <= MOST_PATH else f"{path[:half]}...{path[-half:]}"


def kind(value: Any) -> str:
    """What a value is, in JSON's words: for values that may be long."""
    match value:
        case None:
            return "null"
        case bool():
            return shown(value)
        case int() | float():
            return shown(value)
        case str():
            return f"the string {shown(value)}"
        case list() | tuple():
            return "a list" if value else "an empty list"
        case dict():
            return "an object" if value else "an empty object"
        case _:
            return f"a {type(value).__name__}"
