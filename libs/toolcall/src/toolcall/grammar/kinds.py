"""What a schema's node may be, with references and unions followed."""

import json
from collections.abc import Iterator
from typing import Any

from toolcall.schema.nodes import (
    Anything,
    Array,
    Enum,
    Node,
    Nothing,
    Object,
    Ref,
    Schema,
    Union,
)


def kinds(schema: Schema, node: Node) -> Iterator[Node]:
    """The options of a node, none of them a Ref or a Union."""
    yield from _kinds(schema, node, set())


def roots(schema: Schema) -> Iterator[Object | Anything]:
    """What a tool's arguments may be; values that are no object are left out."""
    for kind in kinds(schema, schema.root):
        match kind:
            case Object() | Anything():
                yield kind
            case Enum(values):
                constants = [constant(value) for value in map(json.loads, values)]
                yield from (each for each in constants if isinstance(each, Object))


def constant(value: Any) -> Node:
    """A node that only this JSON value satisfies."""
    match value:
        case dict():
            members = tuple((name, constant(each)) for name, each in value.items())
            return Object(members, frozenset(value), Nothing())
        case list():
            return Array(tuple(map(constant, value)), Nothing(), len(value), len(value))
        case _:
            return Enum((json.dumps(value),))


def _kinds(schema: Schema, node: Node, seen: set[str]) -> Iterator[Node]:
    match node:
        case Ref(name):
            if name not in seen:
                seen.add(name)
                yield from _kinds(schema, schema.definitions[name], seen)
        case Union(options):
            for option in options:
                yield from _kinds(schema, option, seen)
        case _:
            yield node
