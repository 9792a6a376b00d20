"""Where a grammar accepts more than a schema: reasons why a tool's arguments are not covered.

Only arguments of tools without such a reason may be streamed as they are written; so whatever
is not known to be exact counts as a reason.
"""

from collections.abc import Iterator
from decimal import Decimal

from toolcall.grammar.kinds import kinds
from toolcall.grammar.numbers import MOST_BOUND_DECIMALS, is_kept
from toolcall.grammar.values import Values
from toolcall.schema.nodes import (
    Anything,
    Array,
    Boolean,
    Enum,
    Node,
    Null,
    Number,
    Object,
    Ref,
    Schema,
    String,
    Union,
)

EXACT_FLOATS = Decimal(2**53)
"""Up to here a bound means the same as a decimal number and as a float, which the guard reads."""


def gaps(schema: Schema, values: Values, *, is_tagged: bool) -> Iterator[str]:
    """Why the grammar of a tool's arguments accepts too much; nothing where it is exact."""
    yield from (f"{each.path}: {each.keyword}" for each in schema.unenforced)
    root = schema.resolve(schema.root)
    if is_tagged:
        if not isinstance(root, Object):
            yield "alternatives for all arguments"
        else:
            for name, node in root.properties:
                if _is_ambiguous(schema, node):
                    yield f"{name}: text that may also be read as another type"
    yield from _gaps(schema, root, values, set())


def _gaps(schema: Schema, node: Node, values: Values, seen: set[str]) -> Iterator[str]:
    if id(node) in values.inexact:
        yield values.inexact[id(node)]
    match node:
        case Ref(name):
            if name not in seen:
                seen.add(name)
                yield from _gaps(schema, schema.definitions[name], values, seen)
        case Union(options):
            for option in options:
                yield from _gaps(schema, option, values, seen)
        case Array():
            for each in (*node.prefix, node.items):
                yield from _gaps(schema, each, values, seen)
        case Object():
            for _, each in node.properties:
                yield from _gaps(schema, each, values, seen)
            yield from _gaps(schema, node.additional, values, seen)
        case String():
            if node in values.strings.inexact:
                yield values.strings.inexact[node]
        case Number():
            yield from _number_gaps(node)
        case Anything():
            yield "any value, which may hold a key twice"


def _number_gaps(node: Number) -> Iterator[str]:
    for bound, is_exclusive in (
        (node.minimum, node.is_minimum_exclusive),
        (node.maximum, node.is_maximum_exclusive),
    ):
        # A decimal just inside an exclusive bound is the bound itself once it is a float.
        if bound is not None and (abs(bound) > EXACT_FLOATS or (is_exclusive and bound != 0)):
            yield "a bound that floats do not keep"
        if bound is not None and not is_kept(bound):
            yield f"a bound of more than {MOST_BOUND_DECIMALS} decimals"


def _is_ambiguous(schema: Schema, node: Node) -> bool:
    """Whether raw text of a free string may be taken for JSON that the guard then refuses."""
    options = list(kinds(schema, node))
    has_text = any(isinstance(option, String) for option in options)
    return has_text and not all(map(_is_told_from_text, options))


def _is_told_from_text(option: Node) -> bool:
    match option:
        case Enum(values):
            # Types inside an enumerated array or object are forgotten: [1.0] may pass for [1].
            return not any(value.startswith(("[", "{")) for value in values)
        case _:
            return isinstance(option, String | Null | Boolean)
