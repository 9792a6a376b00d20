"""Schemas that must be refused, each by the path of its fault."""

import contextlib
import json
import time
import tracemalloc
from typing import Any

import pytest

from toolcall.errors import InvalidToolRequest
from toolcall.json_values import SCHEMA
from toolcall.schema.check import MOST_IN_A_ROW, check_schema, check_strict, checked_schema
from toolcall.schema.dialects import DIALECTS
from toolcall.schema.nodes import Enum
from toolcall.schema.normalise import normalise
from toolcall.schema.shapes import SHAPES, misshapen
from toolcall.schema.work import Work

PARAM = "tools[0].function.parameters"
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def fault_of(source: Any) -> InvalidToolRequest:
    with pytest.raises(InvalidToolRequest) as caught:
        check_schema(source, PARAM)
    return caught.value


def of(name: str, schema: Any, **others: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: schema}, **others}


def chain(length: int) -> dict[str, Any]:
    """A property that a row of references speaks of, `length` schemas below its own."""
    definitions: dict[str, Any] = {f"D{at}": {"$ref": f"#/$defs/D{at + 1}"} for at in range(length)}
    definitions[f"D{length}"] = {"type": "integer"}
    return of("a", {"$ref": "#/$defs/D0", "enum": [1]}, **{"$defs": definitions})


MISSHAPEN = [
    (of("city", {"type": "strng"}), "properties.city.type", "Did you mean string?"),
    (of("a", {"type": "dict"}), "properties.a.type", "Did you mean object?"),
    (of("a", {"type": "float"}), "properties.a.type", "Did you mean number?"),
    (of("a", {"type": "any"}), "properties.a.type", "Leave `type` out"),
    (of("a", {"type": None}), "properties.a.type", "got null"),
    (of("a", {"type": []}), "properties.a.type", "an empty list"),
    (of("a", {"type": ["string", "strin"]}), "properties.a.type[1]", "Did you mean string?"),
    (of("a", {"type": ["string", "string"]}), "properties.a.type[1]", "each type once"),
    (of("a", {"type": "string", "required": True}), "properties.a.required", "beside `properties`"),
    ({"required": "a"}, "required", "a list of property names"),
    ({"required": ["a", "a"]}, "required[1]", 'each name once, got "a" again'),
    ({"required": [1]}, "required[0]", "a property name, got 1"),
    ({"properties": ["a"]}, "properties", "an object of schemas, got a list"),
    ({"properties": {"a": "string"}}, "properties.a", 'got the string "string"'),
    ({"items": [{}], "prefixItems": [{}]}, "items", "prefixItems"),
    ({"$schema": DRAFT_7, "items": []}, "items", "at least one schema"),
    ({"anyOf": {}}, "anyOf", "at least one schema"),
    ({"allOf": [{"type": "object"}, 5]}, "allOf[1]", "got 5"),
    ({"minLength": -1}, "minLength", "a whole number from 0 on, got -1"),
    ({"minLength": 1.5}, "minLength", "a whole number"),
    ({"minLength": "1"}, "minLength", 'got the string "1"'),
    ({"minimum": "1"}, "minimum", "a number"),
    ({"minimum": True}, "minimum", "a number, got true"),
    ({"multipleOf": 0}, "multipleOf", "a number above 0"),
    ({"exclusiveMinimum": True, "const": 1}, "exclusiveMinimum", "Only draft-04"),
    ({"pattern": "(a"}, "pattern", "missing )"),
    ({"pattern": r"\p{L}"}, "pattern", "bad escape"),
    ({"pattern": r"(a+)\1*b"}, "pattern", "exponential time"),
    (
        {"patternProperties": {"^(a+)+$": {}}, "unevaluatedProperties": False},
        "patternProperties.^(a+)+$",
        "a simpler expression",
    ),
    (
        {"$ref": "#/x", "x": {"patternProperties": {"^a*a*c": {}}}, "unevaluatedProperties": False},
        "x.patternProperties.^a*a*c",
        "bound all repeats in it but one",
    ),
    ({"patternProperties": {"[": {}}}, "patternProperties.[", "regular expression"),
    ({"enum": "a"}, "enum", "a list"),
    ({"description": None}, "description", "a string, got null"),
    ({"nullable": "true"}, "nullable", "true or false"),
    ({"uniqueItems": 1}, "uniqueItems", "true or false"),
    ({"dependentRequired": {"a": "b"}}, "dependentRequired.a", "a list of property names"),
    ({"$defs": {"A": {"type": "foo"}}}, "$defs.A.type", "one of array"),
    ({"not": {"items": {"type": "foo"}}}, "not.items.type", "one of array"),
    ({"$schema": "https://json-schema.org/draft-03/schema#"}, "$schema", "Leave it out"),
    ({"$id": "http://[", "properties": {"a": {"$id": "c"}}}, "$id", "a URI, got"),
    (of("a", {"$schema": DRAFT_7}), "properties.a.$schema", "one draft for the whole schema"),
    ({"prefixItems": [{}], "dependencies": {"a": ["b"]}}, "dependencies", "2020-12 (the draft"),
    ({"prefixItems": [{"$recursiveRef": "#"}]}, "prefixItems[0].$recursiveRef", "one draft"),
    (
        of("a", {"$ref": "#/x"}, x={"dependencies": {"a": ["b"]}}),
        "x.dependencies",
        "name the draft that you mean",
    ),
    (
        {"$schema": "https://json-schema.org/draft/2019-09/schema", "unevaluatedItems": False},
        "unevaluatedItems",
        "Name 2020-12",
    ),
    ({"$schema": DRAFT_7, "items": {"$id": "//["}}, "items.$id", "a URI, got"),
    ({"$schema": DRAFT_4, "id": "http://["}, "id", "a URI, got"),
]
REFERENCES = [
    (of("a", {"$ref": "#/$defs/B"}, **{"$defs": {"A": {}}}), "properties.a.$ref", "#/$defs/A"),
    (of("a", {"$ref": "#/$defs/B"}), "properties.a.$ref", "Definitions in this schema: none."),
    (
        of("a", {"$ref": "#/x"}, **{"$schema": DRAFT_7, "$defs": 5, "definitions": {"D": {}}}),
        "properties.a.$ref",
        "Definitions in this schema: #/definitions/D.",
    ),
    (of("a", {"$ref": "#nowhere"}), "properties.a.$ref", "a place in this schema"),
    (of("a", {"$ref": "https://x.test/y.json"}), "properties.a.$ref", 'Copy it under "$defs"'),
    (of("a", {"$ref": "other.json#/A"}), "properties.a.$ref", 'Copy it under "$defs"'),
    (of("a", {"$ref": "http://["}), "properties.a.$ref", "inside this schema"),
    (of("a", {"$ref": "#/required"}, required=["a"]), "properties.a.$ref", "which is none"),
    (of("a", {"$ref": "#/required/x"}, required=["a"]), "properties.a.$ref", "a place in"),
    (of("a", {"$ref": "#/allOf/-1"}, allOf=[{}]), "properties.a.$ref", "a place in"),
    (of("a", {"$ref": "#/allOf/%300"}, allOf=[{}]), "properties.a.$ref", "a place in"),
    (
        of("a", {"$ref": "#/$defs/0/allOf/+0"}, **{"$defs": {"0": {"allOf": [{}]}}}),
        "properties.a.$ref",
        "a place in",
    ),
    (of("a", {"$ref": 5}), "properties.a.$ref", "a string"),
    (of("a", {"$ref": "#/x/y"}, x={"y": {"type": "foo"}}), "x.y.type", "one of array"),
    ({"$ref": "#"}, "$ref", "a reference that ends"),
    ({"allOf": [{"anyOf": [{"$ref": "#/allOf/0"}, {}]}]}, "allOf[0].anyOf[0].$ref", "that ends"),
    ({"not": {"$ref": "#"}}, "not.$ref", "a reference that ends"),
    (
        {"$schema": DRAFT_7, "dependencies": {"a": {"$ref": "#"}}, "enum": [{"a": 1}]},
        "dependencies.a.$ref",
        "a reference that ends",
    ),
    (chain(MOST_IN_A_ROW), "$defs.D0.$ref", f"at most {MOST_IN_A_ROW} schemas in a row"),
    (
        of("a", {"$ref": "#/$defs/A"}, **{"$defs": {"A": {"$ref": "#/$defs/A"}}}),
        "$defs.A.$ref",
        "a reference that ends",
    ),
]
TWICE = {
    f"A{at}": {"allOf": [{"$ref": f"#/$defs/A{at + 1}"}, {"$ref": f"#/$defs/A{at + 1}"}]}
    for at in range(14)
}
MULTIPLIED = [
    (of("x", {"$ref": "#/$defs/A0"}, **{"$defs": {**TWICE, "A14": {}}}), "$defs.A2.allOf[0]"),
    # Through properties only the value says how often.
    (
        {
            "enum": [json.loads('{"a": ' * 12 + "1" + "}" * 12)],
            "$ref": "#/$defs/A",
            "$defs": {
                "A": {"allOf": [of("a", {"$ref": "#/$defs/A"}, type=["object", "integer"])] * 2}
            },
        },
        "",
    ),
    # Each of the alternatives tries the constant on all of them.
    ({"enum": [0.5], "anyOf": [{"type": "integer", "minimum": at} for at in range(200)]}, ""),
    # Each error repeats the value.
    ({"enum": ["x" * 100_000], "anyOf": [*[{"type": "null"}] * 100, {"type": "string"}]}, ""),
]
UNSATISFIABLE = [
    (False, ""),
    ({"enum": []}, "enum"),
    (of("a", {"minimum": 5, "maximum": 3}), "properties.a.minimum"),
    (of("a", {"exclusiveMinimum": 5, "maximum": 5}), "properties.a.exclusiveMinimum"),
    (of("a", {"minLength": 2, "maxLength": 1}), "properties.a.minLength"),
    (of("a", {"minItems": 2, "maxItems": 1}), "properties.a.minItems"),
    ({"minProperties": 2, "maxProperties": 1}, "minProperties"),
    (of("a", False, required=["a"]), "properties.a"),
    (of("a", {"not": {}}, required=["a"]), "properties.a"),
    (of("a", {"type": "string", "enum": [1]}, required=["a"]), "properties.a"),
    (of("a", {"allOf": [{"type": "string"}, {"type": "null"}]}, required=["a"]), "properties.a"),
    (of("o", of("a", False, required=["a"])), "properties.o.properties.a"),
    (of("a", {"$ref": "#"}, required=["a"]), ""),
    ({"type": "object", "additionalProperties": False, "required": ["a"]}, "required"),
    ({"type": "object", "allOf": [{"type": "array"}]}, ""),
    (of("n", {"type": "integer", "minimum": 0.2, "maximum": 0.8}, required=["n"]), "properties.n"),
]
SOUND = [
    True,
    {},
    {"type": "object"},
    of("a", False),
    of("a", {"not": {}}),
    of("a", {"$ref": "#"}),
    of("a", {"$ref": "#/$defs/-1~0/allOf/0"}, **{"$defs": {"-1~": {"allOf": [{}]}}}),
    of("a", {"$ref": "#/properties/b"})
    | {"properties": {"a": {"$ref": "#/properties/b"}, "b": {}}},
    {"$schema": "http://json-schema.org/draft-07/schema", "items": [{}], "additionalItems": False},
    {"items": [{}], "additionalItems": False},
    {"minimum": 0, "exclusiveMinimum": True},
    {"dependencies": {"a": ["b"]}},
    {"$schema": DRAFT_2020, "prefixItems": [{}], "dependencies": {"a": ["b"]}},
    {"prefixItems": [{}], "additionalItems": False},
    {"$schema": DRAFT_2020, "dependencies": {"a": {"$ref": "#"}}},
    chain(MOST_IN_A_ROW - 2),
    {
        "$schema": DRAFT_4,
        "id": "http://x.test/",
        "required": [],
        "minimum": 0,
        "exclusiveMinimum": True,
    },
    {"$ref": "http://json-schema.org/draft-07/schema#"},
    {"anyOf": [{"type": "string"}, False]},
    {"x-vendor": {"anything": [1, {"type": "foo"}]}, "default": {"type": "foo"}},
    {"enum": ["a" * 1_000 + "!", "a"], "pattern": "^(a+)+$"},
    {"patternProperties": {"^(a+)+$": {}}, "properties": {"a" * 1_000 + "!": {}}},
    {"properties": {"type": {"type": "string"}, "$ref": {"type": "string"}, "required": {}}},
]


@pytest.mark.parametrize(("source", "path", "text"), MISSHAPEN + REFERENCES)
def test_a_faulty_schema_is_refused_by_the_path_of_the_fault(source, path, text):
    fault = fault_of(source)

    assert fault.param == f"{PARAM}.{path}"
    assert text in str(fault)
    assert str(fault).startswith(f"{fault.param}: expected ")


@pytest.mark.parametrize(("source", "path"), MULTIPLIED)
def test_a_schema_whose_parts_multiply_is_refused(source, path):
    with pytest.raises(InvalidToolRequest) as caught:
        checked_schema(source, PARAM, work=Work(150_000))

    assert caught.value.param == f"{PARAM}.{path}".rstrip(".")
    assert "more, by references" in str(caught.value) or "150,000 steps" in str(caught.value)


SLOW_NAMES = {f"{'a' * 250}{at}": {} for at in range(20)}
SLOW_PATTERNS = {f"^a*a*a*c{at}": {} for at in range(8)}
SLOW_CONSTANTS = {
    "enum": list(SLOW_NAMES),
    "not": {"anyOf": [{"pattern": pattern} for pattern in SLOW_PATTERNS]},
}


@pytest.mark.parametrize(
    "source",
    [of("a", {"properties": SLOW_NAMES, "patternProperties": SLOW_PATTERNS}), SLOW_CONSTANTS],
)
def test_names_and_constants_are_searched_in_linear_time(source):
    began = time.process_time()

    check_schema(source, PARAM)

    # Each of the 160 searches takes 10 ms by backtracking.
    assert time.process_time() - began < 0.8


LONG = {
    "E": {"enum": list(range(4_000))},
    "O": {"type": "object", "properties": {f"a{at}": True for at in range(4_000)}},
}


@pytest.mark.parametrize(
    "source",
    [
        {
            "properties": {f"r{at}": {"$ref": "#/$defs/E", "type": "integer"} for at in range(50)},
            "$defs": LONG,
        },
        {
            "properties": {f"r{at}": {"$ref": "#/$defs/O", "maxProperties": 9} for at in range(50)},
            "$defs": LONG,
        },
        {"oneOf": [{"$ref": "#/$defs/E"}] * 200, "$defs": LONG},
        {"patternProperties": {f"(?i)[\x00-\U0010ffff]{{3}}{at}": {} for at in range(100)}},
        {"allOf": [{"pattern": f".*.*a{{2000}}{at}"} for at in range(100)]},
        {"enum": [f"{'a' * 250}{at}" for at in range(200)], **SLOW_CONSTANTS["not"]},
    ],
)
def test_parts_that_together_take_too_long_are_refused(source):
    with pytest.raises(InvalidToolRequest) as caught:
        checked_schema(source, PARAM, work=Work(300_000))

    assert caught.value.param == PARAM
    assert "300,000 steps" in str(caught.value)


def test_unique_items_are_told_apart_in_one_go():
    items = [{"a": at} for at in range(4_900)]
    began = time.process_time()

    schema = checked_schema({"enum": [items, [0, 0.0], [0, False]], "uniqueItems": True}, PARAM)

    # Pair by pair it takes over ten seconds.
    assert time.process_time() - began < 2
    assert schema.root == Enum((json.dumps(items), "[0, false]"))


@pytest.mark.parametrize(("source", "path"), UNSATISFIABLE)
def test_a_schema_that_nothing_satisfies_is_refused_by_the_path_of_the_fault(source, path):
    fault = fault_of(source)

    assert fault.param == (f"{PARAM}.{path}" if path else PARAM)
    assert "something that a value can satisfy" in str(fault)


@pytest.mark.parametrize("source", SOUND)
def test_a_sound_schema_passes_and_has_a_normal_form(source):
    check_schema(source, PARAM)

    normalise(source)


@pytest.mark.parametrize("source", [None, 5, "object", []])
def test_what_is_no_schema_is_refused(source):
    assert fault_of(source).param == PARAM


def test_a_schema_may_nest_up_to_the_limit():
    def nested(levels: int) -> Any:
        return {"not": nested(levels - 1)} if levels else {"type": "string"}

    check_schema(nested(SCHEMA.depth - 2), PARAM)

    assert "levels of nesting" in str(fault_of(nested(SCHEMA.depth)))


def test_constants_whose_check_would_not_end_are_refused():
    """$dynamicRef leads to the root here, but only for a value that came from there."""
    dynamic = {"$id": "http://b/", "allOf": [{"$dynamicRef": "#n"}]}
    source = {
        "$id": "http://a/",
        "$dynamicAnchor": "n",
        "allOf": [{"$ref": "http://b/"}],
        "$defs": {"b": {**dynamic, "$defs": {"n": {"$dynamicAnchor": "n"}}}},
        "enum": [{}],
    }

    fault = fault_of(source)

    assert fault.param == PARAM
    assert "nested too deeply" in str(fault)


def test_a_schema_may_hold_values_and_characters_up_to_the_limit():
    check_schema({"enum": list(range(SCHEMA.values - 10))}, PARAM)

    assert fault_of({"enum": list(range(SCHEMA.values))}).param == PARAM
    assert fault_of({"description": "x" * SCHEMA.characters}).param == PARAM


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [0] * 20_000},
        {"x": [{}] * 800},
        {"anyOf": [{"minLength": at} for at in range(800)]},
        {"properties": {f"p{at}": {"contentEncoding": "x"} for at in range(800)}},
    ],
    ids=["too many values", "no schemas", "alternatives", "notes"],
)
def test_a_long_name_costs_no_memory_for_each_value_below_it(schema):
    source = of("a" * 50_000, schema)
    tracemalloc.start()

    with contextlib.suppress(InvalidToolRequest):
        check_schema(source, PARAM)

    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 10_000_000


def test_a_long_path_keeps_its_beginning_and_its_end():
    fault = fault_of(of("a" * 50_000, {"type": "dict"}))

    assert fault.param.startswith(f"{PARAM}.properties.aaa")
    assert fault.param.endswith("aaa.type")
    assert len(str(fault)) < 1_000


def test_a_schema_may_hold_expressions_up_to_the_limit():
    def patterns(count: int) -> Any:
        return {"properties": {f"p{at}": {"pattern": f"^{at}"} for at in range(count)}}

    check_schema(patterns(SCHEMA.patterns), PARAM)

    assert "regular expressions" in str(fault_of(patterns(SCHEMA.patterns + 1)))
    named = {"patternProperties": {f"^{at}": {} for at in range(SCHEMA.patterns + 1)}}
    assert "regular expressions" in str(fault_of(named))


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ({"enum": ["a", "\ud800"]}, ".enum[1]"),
        ({"properties": {"\udfff": {}}}, ".properties"),
        ({"minimum": float("nan")}, ".minimum"),
        ({"default": [float("inf")]}, ".default[0]"),
    ],
)
def test_what_has_no_json_text_is_refused(source, path):
    assert fault_of(source).param == PARAM + path


ODD_VALUES = (
    *(None, True, False, 0, -1, 1, 1.5, 2.0, "", "a", "object", "a#b", "(", [], ["a"], ["a", "a"]),
    *(
        [1],
        ["object"],
        ["object", "object"],
        {},
        {"a": 1},
        {"a": {}},
        {"a": ["b"]},
        {"a": ["b", "b"]},
    ),
    *([{}], [True], [5], {"(": {}}),
)
STRICTER = {("draft-06", "$defs"), ("draft-07", "$defs"), ("2019-09", "unevaluatedItems")}


@pytest.mark.parametrize("draft", ["draft-06", "draft-07", "2019-09", "2020-12"])
def test_the_table_of_shapes_agrees_with_the_meta_schema(draft):
    stock = DIALECTS[draft].stock
    meta = stock(stock.META_SCHEMA, format_checker=stock.FORMAT_CHECKER)

    differing = [
        (keyword, value)
        for keyword in SHAPES[draft]
        for value in ODD_VALUES
        if keyword not in ("nullable",) and (draft, keyword) not in STRICTER
        if meta.is_valid({keyword: value}) is any(misshapen({keyword: value}, DIALECTS[draft]))
    ]

    assert differing == []


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)
def test_every_keyword_that_decides_has_a_shape(dialect):
    any_value_will_do = {"const"}

    assert dialect.stock.VALIDATORS.keys() - SHAPES[dialect.name].keys() <= any_value_will_do


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ({"type": "object"}, "additionalProperties"),
        (of("a", of("b", {}), additionalProperties=False), "properties.a.additionalProperties"),
        ({"properties": {}, "additionalProperties": {}}, "additionalProperties"),
        (
            {"type": "array", "items": {"type": ["object", "null"]}},
            "items.additionalProperties",
        ),
        (
            {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object"}}},
            "$defs.A.additionalProperties",
        ),
        (
            of("a", {"$ref": "#/x/A"}, additionalProperties=False, x={"A": {"type": "object"}}),
            "x.A.additionalProperties",
        ),
    ],
)
def test_a_strict_schema_closes_every_object(source, path):
    with pytest.raises(InvalidToolRequest) as caught:
        check_strict(source, PARAM)

    assert caught.value.param == f"{PARAM}.{path}"


def test_a_strict_schema_with_closed_objects_passes():
    check_strict(of("a", {"type": "string"}, additionalProperties=False), PARAM)
    check_strict(of("a", {"$ref": "#"}, additionalProperties=False), PARAM)
