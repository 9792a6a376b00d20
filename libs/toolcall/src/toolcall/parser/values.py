"""What an argument between tags is: a raw string, JSON, or decided by its value.

GLM writes the string `5` and the number 5 alike; only the tool's schema tells them apart. Rule for
a node that takes strings and others: JSON that the node accepts is that value, the rest a string.
"""

import json
from collections.abc import Iterator
from json.encoder import encode_basestring
from typing import Any, Literal, NoReturn

from toolcall.grammar.kinds import kinds
from toolcall.parser.source import BLANKS
from toolcall.schema.match import matches
from toolcall.schema.nodes import (
    Anything,
    Enum,
    Node,
    Nothing,
    Object,
    Ref,
    Schema,
    String,
    Union,
)
from toolcall.schema.values import text_of
from toolcall.strict_json import NotStrictJson, read_json

Spelling = Literal["string", "json", "either"]


def argument_node(schema: Schema, name: str) -> Node:
    """What the schema of a tool's arguments says of the argument `name`.

    A name that the tree excludes may hold anything here: the guard follows the client's schema.
    """
    nodes = tuple(_property_nodes(schema, schema.root, name, frozenset()))
    if not nodes or any(isinstance(node, Anything) for node in nodes):
        return Anything()
    return nodes[0] if len(nodes) == 1 else Union(nodes)


def spelling(schema: Schema, node: Node) -> Spelling:
    """How a value of this node is written between tags."""
    takes_string, takes_other = _takes(schema, node, frozenset())
    if takes_string == takes_other:
        return "either"
    return "string" if takes_string else "json"


def decide(schema: Schema, node: Node, raw: str) -> str:
    """The JSON text of a value that may be a string or something else.

    Blanks around it are a string's: no template writes any around other values.
    """
    if raw != raw.strip(BLANKS):
        return quote(raw)
    try:
        value = read_json(raw)
    except NotStrictJson:
        return quote(raw)
    options = tuple(option for option in kinds(schema, node) if _may_list(option, value))
    is_other = not isinstance(value, str) and matches(schema, Union(options), value)
    return raw if is_other else quote(raw)


def load_json(text: str) -> Any:
    """The JSON value; raises ValueError, also for NaN, endless digits and bottomless nesting."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_int=_integer)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def quote(text: str) -> str:
    """The text as a JSON string."""
    return encode_basestring(text)


def escape(text: str) -> str:
    """The text as a part of a JSON string; parts join to the whole's escape."""
    return encode_basestring(text)[1:-1]


def _may_list(option: Node, value: Any) -> bool:
    """False for a fraction that an Enum lists as an integer, if at all.

    An Enum has forgotten its types, and no integer is written as a fraction.
    """
    if isinstance(option, Enum) and isinstance(value, float):
        return text_of(value) in option.values
    return True


def _property_nodes(schema: Schema, node: Node, name: str, seen: frozenset[str]) -> Iterator[Node]:
    match node:
        case Ref(name=reference):
            if reference not in seen:
                target = schema.definitions[reference]
                yield from _property_nodes(schema, target, name, seen | {reference})
        case Union(options=options):
            for option in options:
                yield from _property_nodes(schema, option, name, seen)
        case Object(properties=properties, additional=additional):
            found = dict(properties).get(name, additional)
            if not isinstance(found, Nothing):
                yield found
        case Enum(values=values):
            objects = [value for value in map(load_json, values) if isinstance(value, dict)]
            allowed = tuple(json.dumps(value[name]) for value in objects if name in value)
            if allowed:
                yield Enum(allowed)
        case Anything():
            yield node


def _takes(schema: Schema, node: Node, seen: frozenset[str]) -> tuple[bool, bool]:
    """Whether the node accepts a string, and whether it accepts anything else."""
    match node:
        case Ref(name=name):
            if name in seen:
                return False, False
            return _takes(schema, schema.definitions[name], seen | {name})
        case Union(options=options):
            taken = [_takes(schema, option, seen) for option in options]
            return any(t[0] for t in taken), any(t[1] for t in taken)
        case Enum(values=values):
            strings = [value.startswith('"') for value in values]
            return any(strings), not all(strings)
        case Anything() | Nothing():
            return True, True
        case String():
            return True, False
        case _:
            return False, True


def _integer(text: str) -> int:
    # Python converts 4,300 digits at most; the guard reads no longer number either.
    try:
        return int(text)
    except ValueError as error:
        raise ValueError("a number with too many digits") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"not JSON: {name}")
