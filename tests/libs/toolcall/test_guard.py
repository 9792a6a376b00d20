"""No call and no structured answer leaves that the client's own schema refuses."""

import json
from typing import Any

import pytest

from toolcall.errors import Fault
from toolcall.guard import MOST_MESSAGE, Guard
from toolcall.requests import plan_output
from toolcall.schema.dialects import validator_of

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DAYS = {"type": "integer", "minimum": 1, "maximum": 10}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": DAYS},
    "required": ["city"],
}


def guard(*, names: tuple[str, ...] = ("w",), parameters: Any = CITY, **fields: Any) -> Guard:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": parameters}} for name in names
    ]
    defaults = dict.fromkeys(("tool_choice", "parallel_tool_calls", "response_format", "guided"))
    return Guard(plan_output(tools=tools or None, **(defaults | fields)))


def property_guard(schema: Any, **root: Any) -> Guard:
    return guard(parameters={"type": "object", "properties": {"x": schema}, **root})


@pytest.mark.parametrize(
    "arguments",
    [
        '{"city": "Paris"}',
        ' {"days": 3,\n "city": "\\u00e9 </tool_call> \\n"} ',
        '{"city": "", "days": 10, "undeclared": [1.0, null]}',
    ],
)
def test_a_valid_call_of_a_declared_tool_leaves(arguments):
    assert guard().check_call("w", arguments, 0) is None


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        ("{}", ["w: arguments: ", 'the property "city"', "got {}"]),
        ('{"city": 5}', ["w: arguments.city: ", "a string", "got 5"]),
        ('{"city": "P", "days": "three"}', ["arguments.days", "an integer", '"three"']),
        ('{"city": "P", "days": 99}', ["arguments.days", "at most 10", "99"]),
        ('{"city": "P", "days": 5.0}', ["arguments.days", "without fraction", "5.0"]),
        ('{"city": "P", "days": 1e0}', ["arguments.days", "without fraction", "1.0"]),
        ('{"city": "P", "days": 1_000}', ["not JSON"]),
        ('{"city": "P", "city": "Q"}', ['the key "city" twice']),
        ('{"city": "P", "x": {"a": 1, "a": 1}}', ['the key "a" twice']),
        ('{"city": NaN}', ["NaN"]),
        ('{"city": "P", "days": -Infinity}', ["-Infinity"]),
        ('{"city": "P"', ["not JSON"]),
        ("{'city': 'P'}", ["not JSON"]),
        ("", ["not JSON"]),
        ("[]", ["expected an object", "[]"]),
        ("null", ["expected an object", "null"]),
        ('{"city": "P"} {}', ["not JSON"]),
        ('{"city": "\ud800"}', ["half a surrogate pair"]),
        ('{"city": "\\ud83d"}', ["half a surrogate pair"]),
        ('{"city": "P", "x": ' + "[" * 100_000 + "]" * 100_000 + "}", ["nested too deeply"]),
        ('{"city": "P", "days": ' + "1" * 5_000 + "}", ["too many digits"]),
    ],
)
def test_invalid_arguments_are_a_fault_that_says_where_and_why(arguments, texts):
    fault = guard().check_call("w", arguments, 2)

    assert (fault.kind, fault.call) == ("invalid_arguments", 2)
    assert all(text in fault.message for text in texts), fault.message


@pytest.mark.parametrize(
    ("schema", "right", "wrong", "text"),
    [
        ({"enum": ["a", "b"]}, '"a"', '"c"', 'one of ["a", "b"]'),
        ({"const": 5}, "5", "6", "expected 5"),
        ({"type": ["string", "null"]}, "null", "5", "a string or null"),
        ({"type": "string", "pattern": "^a"}, '"ab"', '"ba"', 'a match of "^a"'),
        ({"type": "string", "format": "date"}, '"2024-02-29"', '"29.2.2024"', 'the format "date"'),
        ({"type": "string", "format": "unheard-of"}, '"any"', "5", "a string"),
        ({"type": "string", "minLength": 2}, '"🙂🙂"', '"🙂"', "at least 2 characters"),
        ({"type": "number", "multipleOf": 0.1}, "0.3", "0.35", "a multiple of 0.1"),
        ({"type": "number", "exclusiveMinimum": 0}, "1e999", "0", "more than 0"),
        ({"type": "array", "uniqueItems": True}, "[1, 2]", "[1, 1.0]", "non-unique"),
        ({"type": "array", "items": DAYS}, "[1, 2]", "[1, 0]", "arguments.x[1]: expected at least"),
        ({"not": {"type": "null"}}, "1", "null", "should not be valid"),
        ({"type": "string", "nullable": True}, "null", "5", "a string"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "1.5", "1", "valid under each of"),
        ({"$ref": "#/$defs/N"}, "[[]]", "[1]", "an array"),
        ({"type": "object", "additionalProperties": False}, "{}", '{"z": 1}', 'got ["z"]'),
        ({"if": {"type": "string"}, "then": {"const": "a"}}, '"a"', '"b"', 'expected "a"'),
        (False, None, "1", "False schema"),
    ],
)
def test_the_clients_own_schema_decides(schema, right, wrong, text):
    nested = {"N": {"type": "array", "items": {"$ref": "#/$defs/N"}}}
    checked = property_guard(schema, **{"$defs": nested})

    fault = checked.check_call("w", f'{{"x": {wrong}}}', 0)

    assert right is None or checked.check_call("w", f'{{"x": {right}}}', 0) is None
    assert fault.kind == "invalid_arguments"
    assert text in fault.message


def test_the_draft_of_the_schema_decides():
    ignored = {"$ref": "#/definitions/S", "maxLength": 1, "definitions": {"S": {"type": "string"}}}
    source = {"type": "object", "properties": {"x": {"$ref": "#/definitions/S", "maxLength": 1}}}
    source["definitions"] = ignored["definitions"]

    new, old = guard(parameters=source), guard(parameters={"$schema": DRAFT_7, **source})

    assert new.check_call("w", '{"x": "long"}', 0).kind == "invalid_arguments"
    assert old.check_call("w", '{"x": "long"}', 0) is None


def test_a_reference_to_the_root_keeps_what_the_guard_promises():
    """jsonschema would go on with its stock validator below a schema that names its draft."""
    parameters = {
        "$schema": DRAFT_7,
        "type": "object",
        "properties": {"n": {"type": "integer"}, "next": {"$ref": "#"}},
    }

    fault = guard(parameters=parameters).check_call("w", '{"next": {"next": {"n": 5.0}}}', 0)

    assert fault.message.startswith("w: arguments.next.next.n: expected an integer")


def test_nothing_is_ever_fetched(monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a remote reference was followed")

    monkeypatch.setattr("urllib.request.urlopen", refuse)

    with pytest.raises(Exception, match="Unresolvable"):
        validator_of({"$ref": "http://127.0.0.1:9/schema.json"}).is_valid(1)


def test_an_undeclared_name_is_a_fault_that_lists_the_declared_ones():
    fault = guard(names=("w", "now")).check_call("wether", "{}", 1)

    assert (fault.kind, fault.call) == ("undeclared_tool", 1)
    assert '"wether" is not a declared tool; declared are w, now' in fault.message


@pytest.mark.parametrize("name", ["", "W", "w ", "w\n", "\ud800", "x" * 10_000])
def test_any_other_name_is_undeclared(name):
    fault = guard().check_call(name, '{"city": "P"}', 0)

    assert fault.kind == "undeclared_tool"
    fault.message.encode()


def test_a_named_choice_allows_only_that_tool():
    choice = {"type": "function", "function": {"name": "now"}}
    checked = guard(names=("w", "now"), tool_choice=choice)

    assert checked.check_call("now", '{"city": "P"}', 0) is None
    assert checked.check_call("w", '{"city": "P"}', 0).kind == "wrong_tool"


def test_no_tool_may_be_called_under_none():
    assert guard(tool_choice="none").check_call("w", '{"city": "P"}', 0).kind == "wrong_tool"


def test_a_second_call_is_one_too_many_where_calls_are_not_parallel():
    alone, parallel = guard(parallel_tool_calls=False), guard(parallel_tool_calls=True)

    assert alone.check_call("w", '{"city": "P"}', 0) is None
    assert alone.check_call("w", '{"city": "P"}', 1).kind == "too_many_calls"
    assert parallel.check_call("w", '{"city": "P"}', 1) is None


def test_a_tool_that_is_not_strict_is_checked_all_the_same():
    function = {"name": "w", "parameters": CITY, "strict": False}
    fields = dict.fromkeys(("tool_choice", "parallel_tool_calls", "response_format"))
    checked = Guard(plan_output(tools=[{"type": "function", "function": function}], **fields))

    assert checked.check_call("w", "{}", 0).kind == "invalid_arguments"


def test_messages_stay_short():
    choices = [f"choice-{at}" for at in range(500)]
    checked = property_guard({"enum": choices})
    wild = json.dumps({"x": {"k" * 1_000: "v" * 100_000}})

    faults = [
        checked.check_call("w", wild, 0),
        checked.check_call("n" * 100_000, "{}", 0),
        property_guard({"oneOf": [{}, {}]}).check_call("w", wild, 0),
        guard(names=(), guided={"guided_choice": choices}).check_content("x" * 100_000),
        guard(names=(), guided={"guided_regex": "a" * 9_000}).check_content("x" * 100_000),
    ]

    assert all(isinstance(fault, Fault) for fault in faults)
    assert max(len(fault.message) for fault in faults) <= MOST_MESSAGE


STRUCTURES = [
    ({"response_format": {"type": "json_object"}}, '{"a": 1}', ["[]", "{", "", '{"a": 1, "a": 2}']),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": CITY}}},
        '\n{"city": "P", "days": 1}',
        ["{}", '{"city": "P", "days": 1.0}', '{"city": "P"} and more', '{"city": NaN}'],
    ),
    ({"guided": {"guided_regex": "a|ab"}}, "ab", ["abc", "xab", "ab\n", ""]),
    ({"guided": {"guided_choice": ["yes", "no"]}}, "no", ["No", " no", "yesno", ""]),
    ({"guided": {"structured_outputs": {"json": {"type": "array"}}}}, "[1]", ["{}", "1"]),
]


@pytest.mark.parametrize(("fields", "right", "wrong"), STRUCTURES)
def test_a_structured_answer_leaves_only_as_it_was_asked_for(fields, right, wrong):
    checked = guard(names=(), **fields)

    assert checked.check_content(right) is None
    for text in wrong:
        fault = checked.check_content(text)
        assert (fault.kind, fault.call) == ("invalid_content", None)
        assert fault.message.startswith("content")


def test_without_a_structure_any_content_leaves():
    assert guard().check_content("anything") is None


def test_no_pattern_can_hold_up_the_guard():
    slow = {"type": "string", "pattern": "^(a+)+$"}
    names = {"type": "object", "patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}
    long = json.dumps("a" * 50_000 + "!")

    checked = property_guard(slow).check_call("w", f'{{"x": {long}}}', 0)
    named = property_guard(names).check_call("w", f'{{"x": {{{long}: 1}}}}', 0)

    assert "a match of" in checked.message
    assert "no further properties" in named.message


def test_what_multiplies_with_the_answers_depth_is_a_fault(monkeypatch):
    monkeypatch.setattr("toolcall.guard.MOST_STEPS", 300_000)
    inner = {"properties": {"x": {"$ref": "#/$defs/A"}}}
    checked = property_guard({"$ref": "#/$defs/A"}, **{"$defs": {"A": {"allOf": [inner, inner]}}})

    shallow = checked.check_call("w", '{"x": ' * 6 + "1" + "}" * 6, 0)
    deep = checked.check_call("w", '{"x": ' * 12 + "1" + "}" * 12, 0)

    assert shallow is None
    assert "arguments: cannot be checked, it takes over 3" in deep.message


def test_what_no_pattern_can_be_tried_on_is_a_fault():
    checked = property_guard({"type": "string", "pattern": "x.{0,2000}y"})

    fault = checked.check_call("w", json.dumps({"x": "x" * 100_000}), 0)

    assert fault.kind == "invalid_arguments"
    assert "cannot be checked" in fault.message


def test_arguments_that_nest_too_deeply_are_a_fault_however_much_stack_is_left():
    """Where Python's stack ended inside jsonschema's Rust tables, they panicked."""
    checked = property_guard({"if": {"type": "object"}, "then": {"$ref": "#"}})
    arguments = '{"x":' * 300 + "{}" + "}" * 300

    def fault_below(frames: int) -> Fault | None:
        return fault_below(frames - 1) if frames else checked.check_call("w", arguments, 0)

    faults = [fault_below(frames) for frames in range(10)]

    assert all(fault and "nested too deeply" in fault.message for fault in faults)
