"""What each keyword's value must look like, draft by draft: the meta-schemas as a table.

jsonschema could validate a schema against its meta-schema, but takes milliseconds for each tool
and names the fault badly; a test holds this table to the meta-schemas instead. Two differences:
draft-04 may have the later drafts' booleans as schemas and empty lists, and 2019-09 must do without
unevaluatedItems.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit

from toolcall.refusals import kind, shown
from toolcall.schema.dialects import Dialect, DraftName
from toolcall.schema.patterns import fault_of
from toolcall.schema.values import identity

TYPE_NAMES = ("array", "boolean", "integer", "null", "number", "object", "string")
OTHER_LANGUAGES = {
    "any": "Leave `type` out for any value",
    "bool": "Did you mean boolean?",
    "date": 'Write {"type": "string", "format": "date"}',
    "dict": "Did you mean object?",
    "double": "Did you mean number?",
    "float": "Did you mean number?",
    "int": "Did you mean integer?",
    "list": "Did you mean array?",
    "long": "Did you mean integer?",
    "map": "Did you mean object?",
    "none": "Did you mean null?",
    "str": "Did you mean string?",
    "text": "Did you mean string?",
    "tuple": "Did you mean array?",
}
ANCHOR = re.compile(r"[A-Za-z_][-A-Za-z0-9._]*\Z")


@dataclass(frozen=True)
class Misshapen:
    """A keyword whose value is not what its draft says; `path` starts at the schema."""

    path: str
    expected: str
    got: str
    advice: str = ""


Check = Callable[[str, Any], Iterator[Misshapen]]


def misshapen(schema: Mapping[str, Any], dialect: Dialect) -> Iterator[Misshapen]:
    """The faults of a schema's own keywords; schemas inside it are not looked into."""
    shapes = SHAPES[dialect.name]
    for keyword, value in schema.items():
        check = shapes.get(keyword)
        if check is not None:
            yield from check(keyword, value)


def _text(path: str, value: Any) -> Iterator[Misshapen]:
    if not isinstance(value, str):
        yield Misshapen(path, "a string", kind(value))


def _flag(path: str, value: Any) -> Iterator[Misshapen]:
    if not isinstance(value, bool):
        yield Misshapen(path, "true or false", kind(value))


def _number(path: str, value: Any) -> Iterator[Misshapen]:
    if not isinstance(value, int | float) or isinstance(value, bool):
        yield Misshapen(path, "a number", kind(value))


def _exclusive_bound(path: str, value: Any) -> Iterator[Misshapen]:
    advice = "Only draft-04 has booleans here; a schema in its words must use no later keyword."
    for fault in _number(path, value):
        yield Misshapen(path, fault.expected, fault.got, advice if value in (True, False) else "")


def _step(path: str, value: Any) -> Iterator[Misshapen]:
    faults = list(_number(path, value))
    yield from faults
    if not faults and value <= 0:
        yield Misshapen(path, "a number above 0", kind(value))


def _size(path: str, value: Any) -> Iterator[Misshapen]:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or value < 0 or value != int(value):
        yield Misshapen(path, "a whole number from 0 on", kind(value))


def _list(path: str, value: Any) -> Iterator[Misshapen]:
    if not isinstance(value, list):
        yield Misshapen(path, "a list", kind(value))


def _names(path: str, value: Any) -> Iterator[Misshapen]:
    if not isinstance(value, list):
        advice = ""
        if path == "required" and isinstance(value, bool):
            advice = "List the names of required properties beside `properties`."
        yield Misshapen(path, "a list of property names", kind(value), advice)
        return
    seen: set[str] = set()
    for at, name in enumerate(value):
        if not isinstance(name, str):
            yield Misshapen(f"{path}[{at}]", "a property name", kind(name))
            continue
        if name in seen:
            yield Misshapen(f"{path}[{at}]", "each name once", f"{shown(name)} again")
        seen.add(name)


def _names_map(path: str, value: Any) -> Iterator[Misshapen]:
    if not isinstance(value, Mapping):
        yield Misshapen(path, "an object of lists of names", kind(value))
        return
    for name, each in value.items():
        yield from _names(f"{path}.{name}", each)


def _schema(path: str, value: Any) -> Iterator[Misshapen]:
    if not isinstance(value, bool | Mapping):
        advice = ""
        if path == "items" and isinstance(value, list):
            advice = 'Since 2020-12 tuples are `prefixItems`; or name an older draft in "$schema".'
        yield Misshapen(path, "a schema (an object, true or false)", kind(value), advice)


def _schemas(path: str, value: Any) -> Iterator[Misshapen]:
    if not isinstance(value, list) or not value:
        yield Misshapen(path, "a list of at least one schema", kind(value))
        return
    for at, each in enumerate(value):
        yield from _schema(f"{path}[{at}]", each)


def _schema_or_schemas(path: str, value: Any) -> Iterator[Misshapen]:
    yield from _schemas(path, value) if isinstance(value, list) else _schema(path, value)


def _schema_map(path: str, value: Any) -> Iterator[Misshapen]:
    if not isinstance(value, Mapping):
        yield Misshapen(path, "an object of schemas", kind(value))
        return
    for name, each in value.items():
        yield from _schema(f"{path}.{name}", each)


def _pattern_map(path: str, value: Any) -> Iterator[Misshapen]:
    yield from _schema_map(path, value)
    for pattern in value if isinstance(value, Mapping) else ():
        yield from _pattern(f"{path}.{pattern}", pattern)


def _dependencies(path: str, value: Any) -> Iterator[Misshapen]:
    if not isinstance(value, Mapping):
        yield Misshapen(path, "an object of schemas or lists of names", kind(value))
        return
    for name, each in value.items():
        check = _names if isinstance(each, list) else _schema
        yield from check(f"{path}.{name}", each)


def _pattern(path: str, value: Any) -> Iterator[Misshapen]:
    if not isinstance(value, str):
        yield Misshapen(path, "a regular expression", kind(value))
        return
    advice = fault_of(value)
    if advice is not None:
        yield Misshapen(path, "a regular expression in Python's dialect", shown(value), advice)


def _anchor(path: str, value: Any) -> Iterator[Misshapen]:
    if not isinstance(value, str) or not ANCHOR.match(value):
        yield Misshapen(path, "a name of letters, digits, - _ and .", kind(value))


def _uri(path: str, value: Any) -> Iterator[Misshapen]:
    faults = list(_text(path, value))
    yield from faults
    if not faults and not _is_uri(value):
        yield Misshapen(path, "a URI", kind(value), "Brackets hold IPv6 addresses there.")


def _identifier(path: str, value: Any) -> Iterator[Misshapen]:
    if not isinstance(value, str) or "#" in value[:-1]:
        yield Misshapen(path, "a URI without a fragment", kind(value))
    else:
        yield from _uri(path, value)


def _is_uri(text: str) -> bool:
    """True for what references can be resolved against."""
    try:
        urlsplit(text)
    except ValueError:
        return False
    return True


def _unevaluated_items(path: str, value: Any) -> Iterator[Misshapen]:
    # jsonschema 4.26 raises TypeError on it where `items` is a boolean.
    yield Misshapen(
        path, "no unevaluatedItems in a 2019-09 schema", kind(value), 'Name 2020-12 in "$schema".'
    )


def _type(path: str, value: Any) -> Iterator[Misshapen]:
    if isinstance(value, str):
        yield from _type_name(path, value)
    elif not isinstance(value, list) or not value:
        yield Misshapen(path, f"one of {', '.join(TYPE_NAMES)}, or a list of them", kind(value))
    else:
        for at, name in enumerate(value):
            yield from _type_name(f"{path}[{at}]", name)
            if identity(name) in map(identity, value[:at]):
                yield Misshapen(f"{path}[{at}]", "each type once", f"{shown(name)} again")


def _type_name(path: str, name: Any) -> Iterator[Misshapen]:
    if name in TYPE_NAMES:
        return
    advice = ""
    if isinstance(name, str):
        advice = OTHER_LANGUAGES.get(name.lower(), "")
        close = get_close_matches(name.lower(), TYPE_NAMES, n=1)
        if not advice and close:
            advice = f"Did you mean {close[0]}?"
    elif name is None:
        advice = 'Write "null" in quotes.'
    yield Misshapen(path, f"one of {', '.join(TYPE_NAMES)}", kind(name), advice)


ALWAYS: Mapping[str, Check] = {
    "additionalProperties": _schema,
    "allOf": _schemas,
    "anyOf": _schemas,
    "definitions": _schema_map,
    "dependencies": _dependencies,
    "description": _text,
    "enum": _list,
    "format": _text,
    "maxItems": _size,
    "maxLength": _size,
    "maxProperties": _size,
    "maximum": _number,
    "minItems": _size,
    "minLength": _size,
    "minProperties": _size,
    "minimum": _number,
    "multipleOf": _step,
    "not": _schema,
    "nullable": _flag,
    "oneOf": _schemas,
    "pattern": _pattern,
    "patternProperties": _pattern_map,
    "properties": _schema_map,
    "$ref": _text,
    "required": _names,
    "$schema": _text,
    "title": _text,
    "type": _type,
    "uniqueItems": _flag,
}
SINCE: Mapping[DraftName, Mapping[str, Check]] = {
    "draft-06": {
        "$id": _uri,
        "contains": _schema,
        "examples": _list,
        "exclusiveMaximum": _exclusive_bound,
        "exclusiveMinimum": _exclusive_bound,
        "propertyNames": _schema,
    },
    "draft-07": {
        "$comment": _text,
        "contentEncoding": _text,
        "contentMediaType": _text,
        "else": _schema,
        "if": _schema,
        "readOnly": _flag,
        "then": _schema,
    },
    "2019-09": {
        "$anchor": _anchor,
        "$defs": _schema_map,
        "$id": _identifier,
        "$recursiveAnchor": _flag,
        "$recursiveRef": _text,
        "contentSchema": _schema,
        "dependentRequired": _names_map,
        "dependentSchemas": _schema_map,
        "deprecated": _flag,
        "maxContains": _size,
        "minContains": _size,
        "unevaluatedItems": _unevaluated_items,
        "unevaluatedProperties": _schema,
        "writeOnly": _flag,
    },
    "2020-12": {
        "$dynamicAnchor": _anchor,
        "$dynamicRef": _text,
        "$recursiveAnchor": _anchor,
        "prefixItems": _schemas,
        "unevaluatedItems": _schema,
    },
}
"""What each draft added or changed."""
ONLY_DRAFT_04: Mapping[str, Check] = {
    "exclusiveMaximum": _flag,
    "exclusiveMinimum": _flag,
    "id": _uri,
}
DRAFTS: Sequence[DraftName] = ("draft-04", "draft-06", "draft-07", "2019-09", "2020-12")


def _table(draft: DraftName) -> Mapping[str, Check]:
    table = dict(ALWAYS)
    if draft == "draft-04":
        table.update(ONLY_DRAFT_04)
    for earlier in DRAFTS[: DRAFTS.index(draft) + 1]:
        table.update(SINCE.get(earlier, {}))
    table["items"] = _schema if draft == "2020-12" else _schema_or_schemas
    if draft != "2020-12":
        table["additionalItems"] = _schema
    return table


SHAPES = {draft: _table(draft) for draft in DRAFTS}
