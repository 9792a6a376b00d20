"""Arguments are typed by the tool's schema; strings are what the model wrote, byte for byte."""

import json
import time

import pytest

from tests.libs.toolcall.answers import Case, call, check, lines, one, plan, schema_of

W = schema_of({"city": {"type": "string"}}, required=["city"])
OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}
STRING = {"type": "string"}
DEFS = {"E": {"enum": ["a", 5]}, "I": {"type": "integer"}, "O": OBJECT}

STRINGS = {
    "C9 entities": 'a &lt; b &amp;&amp; "&quot;" &amp;lt;',
    "C10 braces, quotes, escapes and line ends": "\n{ } [ ] \" ' \\ \\n\t\r\n end \n",
    "C10 control characters": "\x00\x1f\x7f\u2028",
    "C11 emoji and CJK": "日本 👩‍👩‍👧 é",
    "C12 what looks like another type": "5",
    "C18 tags in plain text": "⟨/tool_call⟩ ⟨tool_call⟩ ⟨arg_key⟩ ⟨/think⟩ ⟨/arg_value⟩",
    "nothing": "",
    "white space": " \n\t ",
    "JSON": '{"a": [1, "b"]}',
}


@pytest.mark.parametrize("form", [call, lines])
@pytest.mark.parametrize("value", STRINGS.values(), ids=STRINGS)
def test_a_string_is_what_the_model_wrote(value, form):
    city = value.replace("⟨", "<").replace("⟩", ">")
    arguments = f'{{"city": {json.dumps(city, ensure_ascii=False)}}}'
    check(Case(plan({"w": W})), "t</think>" + form("w", city=value), one("w", arguments))


UNION = {
    "C12 null": (["string", "null"], "null", "null"),
    "C12 a word": (["string", "null"], "Null", '"Null"'),
    "C13 integer or null": (["integer", "null"], "null", "null"),
    "C13 integer or null, 5": (["integer", "null"], "5", "5"),
    "C13 string or null": (["string", "null"], "hi", '"hi"'),
    "C14 string or integer": (["string", "integer"], "123", "123"),
    "C14 not in the integer's form": (["string", "integer"], "5.0", '"5.0"'),
    "quotes are a string's": (["string", "integer"], '"5"', '"\\"5\\""'),
    "blanks are a string's": (["string", "integer"], " 5", '" 5"'),
    "the number is kept as written": (["string", "number"], "1.00e2", "1.00e2"),
    "no number in JSON": (["string", "number"], "NaN", '"NaN"'),
    "an object": (["string", "object"], '{"a":  1}', '{"a":  1}'),
}


@pytest.mark.parametrize(("types", "value", "expected"), UNION.values(), ids=UNION)
def test_a_value_of_several_types_is_decided_by_one_rule(types, value, expected):
    schema = schema_of({"x": {"type": types}})

    check(
        Case(plan({"f": schema})),
        "t</think>" + call("f", x=value),
        one("f", f'{{"x": {expected}}}'),
    )


ENUMS = {
    "as listed": ({"anyOf": [STRING, {"type": "integer", "enum": [0]}]}, "0", "0"),
    "a fraction": ({"anyOf": [STRING, {"type": "integer", "enum": [0]}]}, "0.0", '"0.0"'),
    "an exponent": ({"anyOf": [STRING, {"type": "integer", "const": 1}]}, "1e0", '"1e0"'),
    "the string": ({"type": ["string", "integer"], "enum": ["1.0", 1]}, "1.0", '"1.0"'),
    "a listed fraction": ({"anyOf": [STRING, {"enum": [1.0, 2.5]}]}, "2.50", "2.50"),
    "an object": ({"anyOf": [STRING, {"enum": [{"k": 1}]}]}, '{"k":1}', '{"k":1}'),
    "a key twice": (
        {"anyOf": [STRING, {"enum": [{"k": 1}]}]},
        '{"k":1,"k":1}',
        r'"{\"k\":1,\"k\":1}"',
    ),
}


@pytest.mark.parametrize(("node", "value", "expected"), ENUMS.values(), ids=ENUMS)
def test_beside_a_string_an_enumerated_value_is_written_as_it_is_listed(node, value, expected):
    check(
        Case(plan({"f": schema_of({"x": node})})),
        "t</think>" + call("f", x=value),
        one("f", f'{{"x": {expected}}}'),
    )


REFERENCES = {
    "C15 to an enum": ({"$ref": "#/$defs/E"}, "5", "5"),
    "C15 to an enum, the string": ({"$ref": "#/$defs/E"}, "a", '"a"'),
    "C15 to an integer": ({"$ref": "#/$defs/I"}, "5", "5"),
    "C15 to an object": ({"$ref": "#/$defs/O"}, '{"n": 1}', '{"n": 1}'),
    "C15 in allOf": ({"allOf": [{"$ref": "#/$defs/I"}]}, "5", "5"),
    "C15 or null": ({"anyOf": [{"$ref": "#/$defs/I"}, {"type": "null"}]}, "5", "5"),
    "C16 an enum without a type": ({"enum": [1, 2]}, "1", "1"),
    "C16 a constant": ({"const": 5}, "5", "5"),
    "C17 a list of objects": (
        {"type": "array", "items": {"$ref": "#/$defs/O"}},
        '[{"n":1,"s":"5"}]',
        '[{"n":1,"s":"5"}]',
    ),
    "a number's lexeme": ({"type": "number"}, "1.0", "1.0"),
    "a large integer": ({"type": "integer"}, "123456789012345678901", "123456789012345678901"),
}


@pytest.mark.parametrize(("node", "value", "expected"), REFERENCES.values(), ids=REFERENCES)
def test_values_are_typed_by_the_resolved_schema(node, value, expected):
    schema = schema_of({"x": node}, **{"$defs": DEFS})

    check(
        Case(plan({"f": schema})),
        "t</think>" + call("f", x=value),
        one("f", f'{{"x": {expected}}}'),
    )


def test_a_reference_at_the_root_types_its_properties():
    root = {"$ref": "#/$defs/R", "$defs": {"R": schema_of({"x": {"type": "integer"}})}}

    check(Case(plan({"f": root})), "t</think>" + call("f", x="5"), one("f", '{"x": 5}'))


def test_further_arguments_are_typed_by_what_the_schema_says_of_them():
    schema = schema_of(additionalProperties={"type": "string"})

    check(Case(plan({"f": schema})), "t</think>" + call("f", x="5"), one("f", '{"x": "5"}'))


DIGITS = "1" * 200_000
ENDLESS = {
    "may be a string": (["string", "number"], f'"{DIGITS}"', None),
    "a number": ("number", None, "invalid_arguments"),
}


@pytest.mark.parametrize(("types", "written", "fault"), ENDLESS.values(), ids=ENDLESS)
def test_more_digits_than_the_guard_reads_are_no_number(types, written, fault):
    """Converting them all would take seconds."""
    case = Case(plan({"f": schema_of({"x": {"type": types, "minimum": 0}})}))
    began = time.thread_time()

    answer = case.read([case.wire("t</think>" + call("f", x=DIGITS))])

    assert time.thread_time() - began < 3
    assert answer.calls == ([("f", f'{{"x": {written}}}')] if written else [])
    assert (answer.fault and answer.fault.kind) == fault
