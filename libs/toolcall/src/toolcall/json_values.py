"""Decoded JSON that a client sent: what may be kept and passed on, whatever it means."""

import math
from dataclasses import dataclass
from typing import Any

from toolcall.refusals import refusal


@dataclass(frozen=True)
class Limits:
    """The most that one value may hold."""

    depth: int
    values: int
    characters: int
    patterns: int


SCHEMA = Limits(depth=64, values=10_000, characters=200_000, patterns=100)
"""32 schemas inside each other are three times what people write, and shallow enough for the
recursive readers of a schema; 10,000 values take about a second of CPU to check, normalise and
compile; descriptions of some pages fit; an expression may cost a millisecond to read."""


def check_json(value: object, param: str, limits: Limits = SCHEMA) -> None:
    """Raises InvalidToolRequest where a value is too large, too deep or not encodable."""
    values = characters = patterns = 0
    waiting: list[tuple[Any, str, int]] = [(value, param, 1)]
    while waiting:
        each, path, depth = waiting.pop()
        values += 1
        match each:
            case str():
                characters += len(each)
                _check_text(each, path)
            case float() if not math.isfinite(each):
                raise refusal(path, "a finite number", str(each))
            case dict():
                patterns += _patterns_in(each)
                for name, inner in each.items():
                    characters += len(name)
                    _check_text(name, path)
                    waiting.append((inner, f"{path}.{name}", depth + 1))
            case list():
                waiting.extend((inner, f"{path}[{at}]", depth + 1) for at, inner in enumerate(each))
        if depth > limits.depth:
            raise refusal(
                _beginning(path),
                f"at most {limits.depth} levels of nesting",
                "more",
                "Use $ref for repeated parts, or flatten it.",
            )
        if values > limits.values or characters > limits.characters:
            raise refusal(
                param,
                f"at most {limits.values:,} JSON values and {limits.characters:,} characters",
                "more",
                "Use $ref for repeated parts, or shorten descriptions and enums.",
            )
        if patterns > limits.patterns:
            raise refusal(param, f"at most {limits.patterns} regular expressions", "more")


def _patterns_in(value: dict[str, Any]) -> int:
    """Regular expressions directly inside, if it is a schema."""
    named = value.get("patternProperties")
    return isinstance(value.get("pattern"), str) + len(named if isinstance(named, dict) else ())


def _check_text(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = f"U+{ord(text[error.start]):04X}"
        raise refusal(
            path, "Unicode text", f"half a surrogate pair ({code})", "Send whole characters."
        ) from error


def _beginning(path: str) -> str:
    return path if len(path) < 200 else f"{path[:200]}..."
