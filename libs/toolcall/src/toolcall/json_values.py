"""Decoded JSON that a client sent: what may be kept and passed on, whatever it means."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from toolcall.refusals import refusal, short_path


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


Trail = tuple["Trail", str | int] | None
"""The way to a value, last step first: thousands of values share what is above them."""


def check_json(value: object, param: str, limits: Limits = SCHEMA) -> None:
    """Raises InvalidToolRequest where a value is too large, too deep or not encodable."""
    values = 1
    characters = patterns = 0
    waiting: list[tuple[Any, Trail, int]] = [(value, None, 1)]
    while waiting:
        each, trail, depth = waiting.pop()
        inside: Iterable[tuple[str | int, Any]] = ()
        match each:
            case str():
                characters += len(each)
                _check_text(each, param, trail)
            case float() if not math.isfinite(each):
                raise refusal(_path(param, trail), "a finite number", str(each))
            case dict():
                patterns += _patterns_in(each)
                characters += sum(map(len, each))
                values += len(each)
                inside = each.items()
            case list():
                values += len(each)
                inside = enumerate(each)
        if depth > limits.depth:
            raise refusal(
                _path(param, trail),
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
        # Only now: what is inside has been counted, so that no more than the limit ever waits.
        for step, inner in inside:
            if isinstance(step, str):
                _check_text(step, param, trail)
            waiting.append((inner, (trail, step), depth + 1))


def _patterns_in(value: dict[str, Any]) -> int:
    """Regular expressions directly inside, if it is a schema."""
    named = value.get("patternProperties")
    return isinstance(value.get("pattern"), str) + len(named if isinstance(named, dict) else ())


def _check_text(text: str, param: str, trail: Trail) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = f"U+{ord(text[error.start]):04X}"
        raise refusal(
            _path(param, trail),
            "Unicode text",
            f"half a surrogate pair ({code})",
            "Send whole characters.",
        ) from error


def _path(param: str, trail: Trail) -> str:
    steps = []
    while trail is not None:
        trail, step = trail
        steps.append(f".{step}" if isinstance(step, str) else f"[{step}]")
    return short_path(param + "".join(reversed(steps)))
