"""The normal form accepts what the client's schema accepts, and says where it accepts more."""

import time
from decimal import Decimal
from typing import Any

import pytest

from toolcall.schema.alternatives import MOST_COMBINED
from toolcall.schema.check import checked_schema
from toolcall.schema.dialects import validator_of
from toolcall.schema.match import matches
from toolcall.schema.nodes import (
    Anything,
    Array,
    Boolean,
    Enum,
    Integer,
    Node,
    Nothing,
    Null,
    Number,
    Object,
    Ref,
    String,
    Union,
)
from toolcall.schema.normalise import normalise

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"

# ---- What one keyword becomes -------------------------------------------------------------------

ROOTS: list[tuple[Any, Node]] = [
    ({}, Anything()),
    (True, Anything()),
    (False, Nothing()),
    ({"type": "null"}, Null()),
    ({"type": "boolean"}, Boolean()),
    ({"type": "string"}, String()),
    ({"type": "object"}, Object()),
    ({"type": "array"}, Array()),
    ({"type": ["string", "null"]}, Union((Null(), String()))),
    ({"type": ["integer", "number"]}, Number()),
    ({"type": ["null", "boolean", "number", "string", "array", "object"]}, Anything()),
    ({"title": "anything", "description": "at all"}, Anything()),
    # Numbers: fractional bounds of integers are rounded inwards, steps are made whole.
    ({"type": "integer", "minimum": 1.5, "maximum": 9.5}, Integer(2, 9)),
    ({"type": "integer", "minimum": -1.5, "exclusiveMaximum": 3}, Integer(-1, 2)),
    ({"type": "integer", "exclusiveMinimum": 1, "maximum": 3.0}, Integer(2, 3)),
    ({"type": "integer", "exclusiveMinimum": 1.2, "minimum": 1}, Integer(2)),
    ({"type": "integer", "minimum": 10**400}, Integer(10**400)),
    ({"type": "integer", "multipleOf": 4}, Integer(multiple_of=4)),
    ({"type": "integer", "multipleOf": 0.5}, Integer(multiple_of=1)),
    ({"type": "integer", "multipleOf": 1.5}, Integer(multiple_of=3)),
    ({"type": "integer", "multipleOf": 4, "allOf": [{"multipleOf": 6}]}, Integer(multiple_of=12)),
    ({"type": "integer", "multipleOf": 5, "minimum": 6, "maximum": 9}, Nothing()),
    ({"type": "number", "minimum": 0.1}, Number(Decimal("0.1"))),
    ({"type": "number", "exclusiveMaximum": 2}, Number(None, Decimal(2), False, True)),
    ({"type": "number", "minimum": 1, "exclusiveMinimum": 1}, Number(Decimal(1), None, True)),
    ({"type": "number", "minimum": 1, "exclusiveMaximum": 1}, Nothing()),
    (
        {"$schema": DRAFT_4, "type": "number", "minimum": 1, "exclusiveMinimum": True},
        Number(Decimal(1), None, True),
    ),
    ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, Integer(2)),
    # Strings.
    (
        {"type": "string", "minLength": 1, "maxLength": 3.0, "pattern": "^a", "format": "date"},
        String(1, 3, "^a", "date"),
    ),
    ({"type": "string", "format": "unheard-of"}, String()),
    # Constants.
    ({"const": 5}, Enum(("5",))),
    ({"const": None}, Enum(("null",))),
    ({"enum": ["a", "é", 1, {"k": [1]}]}, Enum(('"a"', '"é"', "1", '{"k": [1]}'))),
    ({"enum": ["a", 1, None], "type": "string"}, Enum(('"a"',))),
    ({"enum": [1, 2, 30], "maximum": 10}, Enum(("1", "2"))),
    ({"enum": [1, 1.0, True]}, Enum(("1", "true"))),
    ({"enum": [5.0], "type": "integer"}, Enum(("5",))),
    ({"enum": ["a", "b"], "not": {"const": "a"}}, Enum(('"b"',))),
    ({"enum": ["a", "b"], "const": "b"}, Enum(('"b"',))),
    ({"enum": ["a", "b"], "allOf": [{"enum": ["b", "c"]}]}, Enum(('"b"',))),
    ({"enum": ["a"], "type": "integer"}, Nothing()),
    ({"oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]}, Enum(('"a"', '"b"'))),
    # Arrays.
    ({"type": "array", "items": {"type": "null"}, "minItems": 1}, Array((), Null(), 1)),
    (
        {"type": "array", "prefixItems": [{"type": "null"}], "items": False},
        Array((Null(),), Nothing(), 0, 1),
    ),
    (
        {"type": "array", "items": [{"type": "null"}], "additionalItems": {"type": "string"}},
        Array((Null(),), String()),
    ),
    ({"type": "array", "items": [{"type": "null"}, False]}, Array((Null(),), Anything(), 0, 1)),
    ({"type": "array", "items": False}, Array((), Nothing(), 0, 0)),
    ({"type": "array", "items": False, "minItems": 1}, Nothing()),
    ({"$schema": DRAFT_7, "type": "array", "prefixItems": [False]}, Array()),
    # Objects.
    (
        {"type": "object", "properties": {"b": {"type": "null"}, "a": True}, "required": ["a"]},
        Object((("b", Null()), ("a", Anything())), frozenset("a")),
    ),
    ({"type": "object", "required": ["a"]}, Object((), frozenset("a"))),
    (
        {"type": "object", "additionalProperties": {"type": "null"}},
        Object((), frozenset(), Null()),
    ),
    (
        {"type": "object", "properties": {"a": True, "b": False}, "additionalProperties": False},
        Object((("a", Anything()),), frozenset(), Nothing()),
    ),
    (
        {"type": "object", "minProperties": 1, "maxProperties": 2},
        Object((), min_properties=1, max_properties=2),
    ),
    ({"type": "object", "required": ["a", "b"], "maxProperties": 1}, Nothing()),
    ({"type": "object", "required": ["a"], "additionalProperties": False}, Nothing()),
    (
        {"type": "object", "allOf": [{"properties": {"a": True}}], "unevaluatedProperties": False},
        Object((("a", Anything()),), frozenset(), Nothing()),
    ),
    # Combinators.
    ({"allOf": [{"type": ["string", "null"]}, {"type": ["null", "integer"]}]}, Null()),
    ({"allOf": [{"type": "string"}, {"type": "integer"}]}, Nothing()),
    ({"allOf": [{"minimum": 1}, {"maximum": 3}], "type": "integer"}, Integer(1, 3)),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, Union((String(), Null()))),
    ({"anyOf": [{"type": "string"}, {}]}, Anything()),
    ({"anyOf": [{"type": "string"}, False]}, String()),
    ({"oneOf": [{"type": "string"}, {"type": "null"}]}, Union((String(), Null()))),
    ({"type": "string", "nullable": True}, Union((String(), Null()))),
    ({"nullable": True, "allOf": [{"type": "string"}]}, Union((String(), Null()))),
    ({"type": "string", "nullable": False}, String()),
    ({"not": {}}, Nothing()),
    ({"not": True, "type": "string"}, Nothing()),
    ({"not": False, "type": "string"}, String()),
    (
        {
            "type": "object",
            "allOf": [{"properties": {"a": {"type": "integer"}}}],
            "properties": {"a": {"minimum": 2}},
        },
        Object((("a", Integer(2)),)),
    ),
    (
        {
            "type": "object",
            "allOf": [{"properties": {"a": True}, "additionalProperties": False}],
            "properties": {"b": True},
        },
        Object((("a", Anything()),), frozenset(), Nothing()),
    ),
]


@pytest.mark.parametrize(("source", "root"), ROOTS)
def test_a_schema_has_one_normal_form(source, root):
    schema = normalise(source)

    assert schema.root == root
    assert schema.unenforced == ()
    assert schema.source is source


# ---- References ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "definitions"),
    [
        ("#/$defs/N", {"$defs": {"N": {"type": "null"}}}),
        ("#/definitions/N", {"definitions": {"N": {"type": "null"}}}),
        ("#/x/y/0", {"x": {"y": [{"type": "null"}]}}),
        ("#/$defs/a~1b~0c%25", {"$defs": {"a/b~c%": {"type": "null"}}}),
        ("#/properties/other", {}),
        ("#here", {"$defs": {"N": {"$anchor": "here", "type": "null"}}}),
        ("part", {"$id": "https://x.test/root", "$defs": {"N": {"$id": "part", "type": "null"}}}),
        (
            "https://x.test/root#/$defs/N",
            {"$id": "https://x.test/root", "$defs": {"N": {"type": "null"}}},
        ),
    ],
)
def test_a_reference_is_what_it_refers_to(reference, definitions):
    properties = {"other": {"type": "null"}, "a": {"$ref": reference}}

    schema = normalise({"type": "object", "properties": properties, **definitions})

    assert dict(schema.root.properties)["a"] == Null()
    assert schema.definitions == {}


def test_recursion_stays_a_reference():
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}, "required": ["next"]}
    node["properties"]["next"] = {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}

    schema = normalise({"$ref": "#/$defs/N", "$defs": {"N": node}})

    next_node = schema.resolve(dict(schema.root.properties)["next"])
    assert next_node.options[0] == schema.root
    assert next_node.options[1] == Null()
    assert any(isinstance(each, Ref) for each in dict(schema.root.properties).values())


def test_the_root_may_refer_to_itself():
    schema = normalise({"type": "object", "properties": {"next": {"$ref": "#"}}})

    ((_, reference),) = schema.root.properties
    assert schema.resolve(reference) == schema.root


def test_a_recursion_without_an_end_is_nothing():
    schema = normalise({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})

    assert schema.root == Nothing()


@pytest.mark.parametrize(
    ("draft", "expected"),
    [
        (None, String(2)),
        ("https://json-schema.org/draft/2019-09/schema", String(2)),
        (DRAFT_7, String()),
    ],
)
def test_what_stands_beside_a_reference_counts_since_2019(draft, expected):
    source = {"$ref": "#/definitions/S", "minLength": 2, "definitions": {"S": {"type": "string"}}}

    schema = normalise(source if draft is None else {"$schema": draft, **source})

    assert schema.root == expected


def test_shared_definitions_do_not_multiply_the_tree():
    chain = {"d0": {"type": "object", "properties": {"leaf": {"type": "string"}}}}
    for at in range(1, 40):
        below = {"$ref": f"#/$defs/d{at - 1}"}
        chain[f"d{at}"] = {"type": "object", "properties": {"a": below, "b": below}}

    schema = normalise({"$ref": "#/$defs/d39", "$defs": chain})

    assert len(schema.definitions) == 39


@pytest.mark.parametrize(
    ("definition", "is_copied"),
    [
        ({"enum": list(range(1_600))}, True),
        ({"type": "object", "properties": {"a": True}}, True),
        ({"type": "object", "properties": {f"a{at}": True for at in range(1_600)}}, False),
    ],
)
def test_a_large_definition_that_is_shared_stays_one(definition, is_copied):
    shared = {f"r{at}": {"$ref": "#/$defs/L"} for at in range(800)}
    began = time.process_time()

    schema = normalise({"type": "object", "properties": shared, "$defs": {"L": definition}})

    # Set in 800 times it takes seconds, and more in all that read the tree.
    assert time.process_time() - began < 1.5
    assert (schema.definitions == {}) is is_copied


STRINGS = [{"type": "string", "title": str(at)} for at in range(1_000)]
NUMBERS = [{"type": "integer", "title": str(at)} for at in range(1_000)]


@pytest.mark.parametrize(
    ("used", "uses"),
    [
        ({"oneOf": [{"$ref": "#/$defs/S"}]}, 800),
        ({"oneOf": [{"$ref": "#/$defs/S"}, {"$ref": "#/$defs/N"}]}, 500),
        ({"allOf": [{"$ref": "#/$defs/S"}, {"$ref": "#/$defs/N"}], "minLength": 1}, 300),
    ],
)
def test_using_a_long_union_again_and_again_is_bounded(used, uses):
    properties = {f"r{at}": dict(used) for at in range(uses)}
    definitions = {"S": {"anyOf": STRINGS}, "N": {"anyOf": NUMBERS}}
    began = time.process_time()

    checked_schema({"properties": properties, "$defs": definitions}, "p")

    # A few tenths of a second; unbounded it takes three, and a minute for the third.
    assert time.process_time() - began < 2.5


def test_a_single_option_is_apart():
    schema = normalise({"oneOf": [{"anyOf": [{"minLength": 1}, {"pattern": "a"}]}]})

    assert schema.unenforced == ()


def test_a_long_chain_of_references_does_not_nest_without_end():
    chain = {f"d{at}": {"properties": {"a": {"$ref": f"#/$defs/d{at + 1}"}}} for at in range(500)}

    schema = normalise({"$ref": "#/$defs/d0", "$defs": {**chain, "d500": {"type": "null"}}})

    assert matches(schema, schema.root, {"a": {"a": {"a": 5}}})


# ---- Closed objects -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "is_open"),
    [
        ({"type": "object", "properties": {"a": True}}, False),
        ({"type": "object", "properties": {}}, True),
        ({"type": "object"}, True),
        ({"type": "object", "properties": {"a": True}, "additionalProperties": True}, True),
        ({"type": "object", "properties": {"a": True}, "patternProperties": {"^x": True}}, True),
        ({"type": "object", "properties": {"a": True}, "minProperties": 3}, True),
        ({"type": "object", "properties": {"a": True}, "dependentRequired": {"a": ["z"]}}, True),
        (
            {
                "type": "object",
                "properties": {"a": True},
                "if": {"required": ["a"]},
                "then": {"required": ["z"]},
            },
            True,
        ),
        (
            {"type": "object", "allOf": [{"properties": {"a": True}}, {"properties": {"b": True}}]},
            False,
        ),
    ],
)
def test_a_tools_object_that_lists_its_properties_is_closed(source, is_open):
    closed, as_written = normalise(source, is_closed=True), normalise(source)

    assert matches(as_written, as_written.root, {"a": 1, "z": 1, "y": 1})
    assert matches(closed, closed.root, {"a": 1, "z": 1, "y": 1}) is is_open


def test_closing_reaches_every_level_and_keeps_required_names():
    inner = {"type": "object", "properties": {"b": {"type": "null"}}, "required": ["undeclared"]}

    schema = normalise({"type": "object", "properties": {"a": inner}}, is_closed=True)

    assert matches(schema, schema.root, {"a": {"undeclared": 1}})
    assert not matches(schema, schema.root, {"a": {"undeclared": 1, "other": 1}})


# ---- What the tree leaves to the guard ----------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "path", "keyword"),
    [
        ({"type": "array", "uniqueItems": True}, "", "uniqueItems"),
        ({"type": "array", "contains": {"const": 1}}, "", "contains"),
        ({"type": "array", "unevaluatedItems": False}, "", "unevaluatedItems"),
        ({"type": "number", "multipleOf": 0.1}, "", "multipleOf"),
        ({"not": {"type": "null"}}, "", "not"),
        ({"if": {"type": "null"}, "then": {"const": None}}, "", "if"),
        ({"type": "object", "dependentRequired": {"a": ["b"]}}, "", "dependentRequired"),
        ({"type": "object", "dependentSchemas": {"a": False}}, "", "dependentSchemas"),
        ({"$schema": DRAFT_7, "dependencies": {"a": ["b"]}}, "", "dependencies"),
        ({"type": "object", "patternProperties": {"^x": False}}, "", "patternProperties"),
        ({"type": "object", "propertyNames": {"maxLength": 2}}, "", "propertyNames"),
        (
            {"type": "object", "unevaluatedProperties": {"type": "null"}},
            "",
            "unevaluatedProperties",
        ),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "", "oneOf"),
        ({"type": "string", "contentEncoding": "base64"}, "", "contentEncoding"),
        ({"type": "string", "pattern": "a", "allOf": [{"pattern": "b"}]}, "allOf[0]", "pattern"),
        (
            {"type": "object", "properties": {"l": {"items": {"not": {"const": 1}}}}},
            "properties.l.items",
            "not",
        ),
    ],
)
def test_what_the_tree_leaves_out_is_named_with_its_path(source, path, keyword):
    schema = normalise(source)

    assert [(gap.path, gap.keyword) for gap in schema.unenforced] == [(path, keyword)]
    assert schema.unenforced[0].reason


@pytest.mark.parametrize(
    "source",
    [
        {
            "type": "string",
            "uniqueItems": True,
            "minProperties": 3,
            "propertyNames": {"pattern": "a"},
        },
        {"type": "array", "uniqueItems": True, "maxItems": 1},
        {"if": {"type": "string"}},
        {"oneOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]},
        {
            "oneOf": [
                {"type": "object", "properties": {"kind": {"const": kind}}, "required": ["kind"]}
                for kind in ("a", "b", "c")
            ]
        },
        {"oneOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]},
    ],
)
def test_what_makes_no_difference_is_not_named(source):
    assert normalise(source).unenforced == ()


A_ALONE = {"properties": {"a": True}, "unevaluatedProperties": False}
OF_B = {"type": "object", "properties": {"b": True}}


@pytest.mark.parametrize(
    ("source", "paths"),
    [
        ({**OF_B, "$ref": "#/$defs/A", "$defs": {"A": A_ALONE}}, ["$defs.A"]),
        ({"type": "object", "allOf": [A_ALONE, OF_B]}, ["allOf[0]"]),
        ({**OF_B, "allOf": [A_ALONE], "unevaluatedProperties": False}, ["allOf[0]"]),
        ({"type": "object", **A_ALONE, "anyOf": [{"required": ["b"]}, {}]}, [""]),
        ({"type": "object", **A_ALONE, "required": ["b"], "allOf": [OF_B]}, []),
        ({"type": "object", **A_ALONE, "anyOf": [OF_B, {"required": ["a"]}]}, []),
        ({"type": "object", "allOf": [A_ALONE], "properties": {"a": {"type": "null"}}}, []),
    ],
)
def test_what_closes_only_a_part_of_an_object_is_named(source, paths):
    schema = normalise(source, is_closed=True)

    assert [gap.path for gap in schema.unenforced] == paths
    if not paths:
        values = ({}, {"a": None}, {"b": 1}, {"a": None, "b": 1})
        allowed = [value for value in values if matches(schema, schema.root, value)]
        assert all(validator_of(source).is_valid(value) for value in allowed)
        assert allowed


def test_a_pattern_of_names_leaves_the_object_open():
    source = {
        "type": "object",
        "patternProperties": {"^x": {"type": "null"}},
        "additionalProperties": False,
    }

    schema = normalise(source)

    assert schema.root == Object()


def test_a_product_of_choices_is_bounded():
    choices = [{"anyOf": [{"minLength": at} for at in range(5)]} for _ in range(10)]
    source = {"type": "string", "allOf": choices}

    schema = normalise(source)

    assert len(schema.unenforced) == 1
    options = schema.root.options if isinstance(schema.root, Union) else (schema.root,)
    assert len(options) <= MOST_COMBINED
    assert matches(schema, schema.root, "abcdef")


def _recursive(size: int) -> dict[str, Any]:
    """Definitions each of whose properties is an allOf of two others: products of products."""
    pairs = {
        f"d{at}": {
            "type": "object",
            "properties": {
                name: {
                    "allOf": [
                        {"$ref": f"#/$defs/d{(at * step + 1) % size}"},
                        {"$ref": f"#/$defs/d{(at + step * 7) % size}"},
                    ]
                }
                for step, name in enumerate("abcdef", 2)
            },
        }
        for at in range(size)
    }
    return {"$ref": "#/$defs/d1", "$defs": pairs}


LONG_NAMES = [f"x{at}" for at in range(300)]


@pytest.mark.parametrize(
    ("source", "keyword", "instance"),
    [
        (_recursive(40), "allOf", {"a": {"b": {"c": {}}}}),
        ({"anyOf": [{"const": at} for at in range(2_500)]}, "anyOf", 2_499),
        ({"enum": [*LONG_NAMES, *range(2_000)], "minLength": 1}, "enum", 1_999),
        (
            {
                "type": "object",
                "properties": {name: {"type": "null"} for name in LONG_NAMES},
                "allOf": [{"additionalProperties": {"minLength": at}} for at in range(80)],
            },
            "properties",
            {"x1": None, "other": "x" * 80},
        ),
    ],
)
def test_what_would_grow_without_end_is_cut_and_named(source, keyword, instance):
    began = time.process_time()

    schema = normalise(source)

    # Milliseconds to half a second; uncut it would be minutes.
    assert time.process_time() - began < 5
    assert keyword in {gap.keyword for gap in schema.unenforced}
    assert validator_of(source).is_valid(instance)
    assert matches(schema, schema.root, instance)


def test_a_recursive_product_ends():
    left = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/L"}, "b": {"$ref": "#/$defs/R"}},
    }
    right = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/R"}, "b": {"$ref": "#/$defs/L"}},
    }

    schema = normalise(
        {"allOf": [{"$ref": "#/$defs/L"}, {"$ref": "#/$defs/R"}], "$defs": {"L": left, "R": right}}
    )

    assert len(schema.definitions) == 1
    assert matches(schema, schema.root, {"a": {"b": {}}})
