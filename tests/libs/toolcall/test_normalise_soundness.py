"""For any schema: its normal form accepts what the schema accepts, and says where it is wider."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema.protocols import Validator

from tests.libs.toolcall.test_normalise import DRAFT_7, ROOTS
from toolcall.errors import InvalidToolRequest
from toolcall.schema import constraints
from toolcall.schema import normalise as normalising
from toolcall.schema.alternatives import Spreader
from toolcall.schema.check import check_schema
from toolcall.schema.dialects import Dialect, validator_of
from toolcall.schema.match import matches
from toolcall.schema.nodes import (
    Integer,
    Node,
    Object,
    Schema,
)
from toolcall.schema.normalise import Normaliser, normalise

NAMES = ("a", "b", "x1")
SCALARS = (
    None,
    True,
    False,
    -3,
    0,
    1,
    2,
    4,
    6,
    0.5,
    1.5,
    -2.5,
    "",
    "a",
    "ab",
    "x1",
    "é\n",
    "2024-02-29",
)


def _pool() -> Iterator[Any]:
    """Small JSON values, of which every schema below accepts some."""
    yield from SCALARS
    yield from ([], [[]], {}, {"a": {"a": {}}}, {"a": {"b": []}}, [None, None], [1, 1, 1])
    yield from ([each] for each in SCALARS)
    yield from ({"a": each} for each in SCALARS)
    for one, other in itertools.product((None, 1, "a", 0.5, {}), repeat=2):
        yield [one, other]
        yield {"a": one, "b": other}
        yield {"x1": one, "b": [other]}
    yield dict.fromkeys(NAMES, 1)


POOL = tuple(_pool())
SIZES = st.integers(0, 3)
BOUNDS = st.sampled_from((-3, 0, 1, 2, 4, 0.5, 1.5, -2.5))
PATTERNS = ("a", "^a", "1$", "^x[0-9]$", "^.*$")
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
DRAFTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    DRAFT_7,
)
CONSTANTS = st.lists(st.sampled_from(POOL), min_size=1, max_size=3)
SCALAR_LEAVES = (
    st.booleans()
    | st.sampled_from(TYPES).map(lambda name: {"type": name})
    | CONSTANTS.map(lambda values: {"enum": values})
)
REFERENCES = st.sampled_from(("#", "#/$defs/a", "#/$defs/b")).map(lambda path: {"$ref": path})
PLAIN = {
    "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, unique=True),
    "required": st.lists(st.sampled_from(NAMES), unique=True, max_size=2),
    "minProperties": SIZES,
    "maxProperties": SIZES,
    "minItems": SIZES,
    "maxItems": SIZES,
    "uniqueItems": st.booleans(),
    "minimum": BOUNDS,
    "exclusiveMinimum": BOUNDS,
    "maximum": BOUNDS,
    "exclusiveMaximum": BOUNDS,
    "multipleOf": st.sampled_from((1, 2, 3, 0.5, 1.5)),
    "minLength": SIZES,
    "maxLength": SIZES,
    "pattern": st.sampled_from(PATTERNS),
    "format": st.sampled_from(("date", "unheard-of")),
    "enum": CONSTANTS,
    "const": st.sampled_from(POOL),
    "dependentRequired": st.just({"a": ["b"]}),
    "nullable": st.booleans(),
}
INSIDE = ("additionalProperties", "items", "contains", "unevaluatedProperties")
IN_PLACE = ("not", "if", "then")
LISTS = ("allOf", "anyOf", "oneOf")
MAPS = {"properties": NAMES, "patternProperties": PATTERNS}
FREQUENT = ("type", "type", "properties", "properties", "anyOf", "allOf", "items", "required")
KEYWORDS = st.lists(
    st.sampled_from((*PLAIN, *INSIDE, *IN_PLACE, *LISTS, *MAPS, "prefixItems", *FREQUENT)),
    min_size=1,
    max_size=4,
    unique=True,
)


@st.composite
def _schemas_of_depth(draw: st.DrawFn, depth: int, is_inside: bool = False) -> Any:
    """References only stand where another value is spoken of: others might never end."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(REFERENCES | SCALAR_LEAVES if is_inside else SCALAR_LEAVES)
    inside = _schemas_of_depth(depth - 1, is_inside=True)
    in_place = _schemas_of_depth(depth - 1)
    schema: dict[str, Any] = {}
    for keyword in draw(KEYWORDS):
        if keyword in PLAIN:
            schema[keyword] = draw(PLAIN[keyword])
        elif keyword in MAPS:
            names = draw(st.lists(st.sampled_from(MAPS[keyword]), max_size=2, unique=True))
            schema[keyword] = {name: draw(inside) for name in names}
        elif keyword in LISTS:
            schema[keyword] = draw(st.lists(in_place, min_size=1, max_size=2))
        elif keyword == "prefixItems":
            schema[keyword] = draw(st.lists(inside, min_size=1, max_size=2))
        else:
            schema[keyword] = draw(inside if keyword in INSIDE else in_place)
    return schema


@st.composite
def _schemas(draw: st.DrawFn) -> Any:
    root = draw(_schemas_of_depth(2))
    return {
        **(root if isinstance(root, dict) else {"allOf": [root]}),
        "$defs": {"a": draw(_schemas_of_depth(1)), "b": draw(_schemas_of_depth(1))},
        "$schema": draw(st.sampled_from(DRAFTS)),
    }


ANY_SCHEMA = _schemas()
FAST = settings(
    max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), database=None
)


def _may_be_sent(source: Any) -> bool:
    try:
        check_schema(source, "schema")
    except InvalidToolRequest:
        return False
    return True


def _unsound(sources: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Schemas with instances that the guard accepts and the tree does not."""
    return [
        (source, instance)
        for source, schema, validator in _read(sources)
        for instance in POOL
        if validator.is_valid(instance) and not matches(schema, schema.root, instance)
    ]


def _wider_without_a_word(sources: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Schemas with instances that only the guard refuses, where the tree does not say so."""
    return [
        (source, instance)
        for source, schema, validator in _read(sources)
        for instance in POOL
        if not schema.unenforced
        and matches(schema, schema.root, instance)
        and not validator.is_valid(instance)
    ]


def _read(sources: Iterable[Any]) -> Iterator[tuple[Any, Schema, Validator]]:
    for source in sources:
        yield source, normalising.normalise(source), validator_of(source)


CORPUS = [source for source, _ in ROOTS] + [
    {"$schema": DRAFT_7, "$ref": "#/definitions/S", "maxLength": 0, "definitions": {"S": {}}},
    {"properties": {"a": {"$ref": "#/$defs/N"}}, "$defs": {"N": {"type": ["null", "object"]}}},
    {"type": "array", "uniqueItems": True},
    {"type": "object", "patternProperties": {"^x": {"type": "integer"}}},
    {"properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
]


def test_what_any_schema_of_the_corpus_accepts_its_normal_form_accepts():
    assert _unsound(CORPUS) == []


def test_any_schema_of_the_corpus_says_where_its_normal_form_is_wider():
    assert _wider_without_a_word(CORPUS) == []


@given(ANY_SCHEMA)
@FAST
def test_what_a_schema_accepts_its_normal_form_accepts(source):
    assume(_may_be_sent(source))

    assert _unsound([source]) == []


@given(ANY_SCHEMA)
@FAST
def test_where_the_normal_form_is_wider_it_says_so(source):
    assume(_may_be_sent(source))

    assert _wider_without_a_word([source]) == []


@given(ANY_SCHEMA)
@settings(FAST, max_examples=40)
def test_a_closed_normal_form_accepts_nothing_that_the_open_one_refuses(source):
    assume(_may_be_sent(source))

    closed, as_written = normalise(source, is_closed=True), normalise(source)

    for each in POOL:
        assert matches(as_written, as_written.root, each) or not matches(closed, closed.root, each)


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": ["integer", "null"], "minimum": 0},
        "tags": {"type": "array", "items": {"enum": ["x", "y", 3]}, "maxItems": 3},
        "score": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "address": {"anyOf": [{"$ref": "#/$defs/address"}, {"type": "null"}]},
    },
    "required": ["name", "address"],
    "$defs": {
        "address": {
            "allOf": [{"type": "object", "required": ["city"]}],
            "properties": {
                "city": {"type": "string"},
                "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
            },
        }
    },
}


PEOPLE = st.fixed_dictionaries(
    {"name": st.text(), "address": st.none() | st.fixed_dictionaries({"city": st.text()})},
    optional={
        "age": st.none() | st.integers(-1),
        "tags": st.lists(st.sampled_from(("x", "y", 3, 4)), max_size=4),
        "score": st.floats(allow_nan=False, allow_infinity=False, min_value=-1, max_value=2),
        "more": st.sampled_from(POOL),
    },
)


@given(PEOPLE)
@settings(FAST, max_examples=80)
def test_the_normal_form_of_a_usual_schema_accepts_exactly_its_instances(person):
    schema = normalise(PERSON)

    assert schema.unenforced == ()
    assert matches(schema, schema.root, person) is validator_of(PERSON).is_valid(person)


# ---- Mutants: the properties above must notice each of them -------------------------------------


def _lose_the_last_option(patch: pytest.MonkeyPatch) -> None:
    any_of = Spreader._any_of
    patch.setattr(
        Spreader, "_any_of", lambda self, options, *rest: any_of(self, options[:1], *rest)
    )


def _lose_nullable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Spreader, "_or_null", lambda _, found, __: found)


def _close_open_objects(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(normalising, "normalise", lambda source: normalise(source, is_closed=True))


def _read_old_references_like_new_ones(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dialect, "merges_ref_siblings", property(lambda _: True))


def _round_bounds_outwards_by_one(patch: pytest.MonkeyPatch) -> None:
    integer_node = constraints.integer_node

    def shifted(plains: Any) -> Node:
        node = integer_node(plains)
        is_bounded = isinstance(node, Integer) and node.minimum is not None
        return Integer(node.minimum + 1, node.maximum) if is_bounded else node

    patch.setattr(normalising, "integer_node", shifted)


def _require_all_properties(patch: pytest.MonkeyPatch) -> None:
    object_node = constraints.object_node

    def requiring(*arguments: Any) -> Node:
        node = object_node(*arguments)
        names = frozenset(name for name, _ in getattr(node, "properties", ()))
        return Object(node.properties, names, node.additional) if names else node

    patch.setattr(normalising, "object_node", requiring)


NARROWER = [
    _lose_the_last_option,
    _lose_nullable,
    _close_open_objects,
    _read_old_references_like_new_ones,
    _round_bounds_outwards_by_one,
    _require_all_properties,
]


@pytest.mark.parametrize("mutate", NARROWER)
def test_a_normaliser_that_refuses_too_much_is_found(mutate, monkeypatch):
    mutate(monkeypatch)

    assert _unsound(CORPUS)


def test_a_normaliser_that_forgets_its_gaps_is_found(monkeypatch):
    monkeypatch.setattr(Normaliser, "_note", lambda *_: None)

    assert _wider_without_a_word(CORPUS)
