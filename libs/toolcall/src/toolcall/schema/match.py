"""What the normal form of a schema accepts, value by value."""

import json
from decimal import Decimal
from functools import lru_cache
from typing import Any

from toolcall.schema.nodes import (
    Anything,
    Array,
    Boolean,
    Enum,
    Integer,
    Node,
    Null,
    Number,
    Object,
    Schema,
    String,
    Union,
)
from toolcall.schema.patterns import search
from toolcall.schema.string_formats import FORMATS
from toolcall.schema.values import identity
from toolcall.schema.work import TooMuchWork, Work

LOOKED_AT = 10
"""Steps (schema/work.py) of looking at one value by one node."""
LISTED = 10
"""Names or constants of a node that are made ready for that in one step."""


def matches(schema: Schema, node: Node, value: object) -> bool:
    """True when the node accepts a value that json.loads gave; an integer given as 5.0 is none.

    A value nested too deeply to look at is refused, and one that takes too much work.
    """
    try:
        return _matches(schema, node, value, Work())
    except (RecursionError, TooMuchWork):
        return False


def _matches(schema: Schema, node: Node, value: Any, work: Work) -> bool:
    work.spend(LOOKED_AT)
    match schema.resolve(node):
        case Anything():
            return True
        case Null():
            return value is None
        case Boolean():
            return isinstance(value, bool)
        case Integer() as bounds:
            return isinstance(value, int) and _matches_integer(bounds, value)
        case Number() as bounds:
            return isinstance(value, int | float) and _matches_number(bounds, value)
        case String() as string:
            return isinstance(value, str) and _matches_string(string, value, work)
        case Enum(values):
            work.spend(len(values) // LISTED)
            return identity(value) in _identities(values)
        case Array() as array:
            return isinstance(value, list) and _matches_array(schema, array, value, work)
        case Object() as fields:
            return isinstance(value, dict) and _matches_object(schema, fields, value, work)
        case Union(options):
            return any(_matches(schema, option, value, work) for option in options)
        case _:
            return False


def _matches_integer(node: Integer, value: int) -> bool:
    if isinstance(value, bool):
        return False
    return (
        (node.minimum is None or value >= node.minimum)
        and (node.maximum is None or value <= node.maximum)
        and (node.multiple_of is None or value % node.multiple_of == 0)
    )


def _matches_number(node: Number, value: float) -> bool:
    if isinstance(value, bool):
        return False
    low, high = node.minimum, node.maximum
    is_above = low is None or any(
        form > low or (form == low and not node.is_minimum_exclusive) for form in _forms(value, low)
    )
    return is_above and (
        high is None
        or any(
            form < high or (form == high and not node.is_maximum_exclusive)
            for form in _forms(value, high)
        )
    )


def _forms(value: float, bound: Decimal) -> tuple[Decimal, ...]:
    """The decimals that a number may be compared as.

    What was written decides; but at bounds that a float cannot hold exactly (1e23) the validator
    compares the binary numbers, and either may be right.
    """
    # Python writes no integer of more than 4,300 digits out; of an integer this is exact.
    written = Decimal(value) if isinstance(value, int) else Decimal(repr(value))
    return (written, Decimal(value)) if bound == bound.to_integral_value() else (written,)


def _matches_string(node: String, value: str, work: Work) -> bool:
    if len(value) < node.min_length:
        return False
    if node.max_length is not None and len(value) > node.max_length:
        return False
    if node.pattern is not None and not search(node.pattern, value, work):
        return False
    return node.format not in FORMATS or search(FORMATS[node.format], value, work)


def _matches_array(schema: Schema, node: Array, value: list[Any], work: Work) -> bool:
    if len(value) < node.min_items:
        return False
    if node.max_items is not None and len(value) > node.max_items:
        return False
    return all(
        _matches(schema, node.prefix[at] if at < len(node.prefix) else node.items, each, work)
        for at, each in enumerate(value)
    )


def _matches_object(schema: Schema, node: Object, value: dict[str, Any], work: Work) -> bool:
    if len(value) < node.min_properties or not node.required <= value.keys():
        return False
    if node.max_properties is not None and len(value) > node.max_properties:
        return False
    work.spend(len(node.properties) // LISTED)
    properties = dict(node.properties)
    return all(
        _matches(schema, properties.get(name, node.additional), each, work)
        for name, each in value.items()
    )


@lru_cache(maxsize=1024)
def _identities(values: tuple[str, ...]) -> frozenset[object]:
    return frozenset(identity(json.loads(text)) for text in values)
