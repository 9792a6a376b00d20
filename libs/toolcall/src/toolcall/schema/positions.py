"""Where schemas stand inside a schema, in every draft."""

from collections.abc import Iterator, Mapping
from typing import Any

ONE = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
LISTS = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
MAPS = (
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
)


def subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each schema directly inside, with its path from here; what is no schema is passed over."""
    for keyword, value in schema.items():
        if keyword in ONE and isinstance(value, bool | Mapping):
            yield keyword, value
        elif keyword in LISTS and isinstance(value, list):
            yield from ((f"{keyword}[{index}]", each) for index, each in enumerate(value))
        elif keyword in MAPS and isinstance(value, Mapping):
            for name, each in value.items():
                if isinstance(each, bool | Mapping):
                    yield f"{keyword}.{name}", each
