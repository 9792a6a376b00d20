"""What each node accepts."""

import json
from decimal import Decimal

import pytest

from toolcall.schema.match import matches
from toolcall.schema.nodes import (
    Anything,
    Array,
    Boolean,
    Enum,
    Integer,
    Nothing,
    Null,
    Number,
    Object,
    Ref,
    Schema,
    String,
    Union,
)
from toolcall.schema.work import Work

CASES = [
    # node, JSON texts that it accepts, JSON texts that it refuses
    (Anything(), ["null", "1", '"a"', "[]", "{}"], []),
    (Nothing(), [], ["null", "1", '"a"', "[]", "{}"]),
    (Null(), ["null"], ["0", "false", '""', '"null"']),
    (Boolean(), ["true", "false"], ["0", "1", '"true"', "null"]),
    (Integer(), ["0", "-7", "1" + "0" * 400], ["5.0", "1e2", "true", '"5"']),
    (Integer(1, 10, 3), ["3", "9"], ["0", "1", "12", "10"]),
    (Integer(-3), ["-3", "0"], ["-4"]),
    (Number(), ["0", "1.5", "1e999", "-1e-9"], ["true", '"1"', "null"]),
    (Number(Decimal("0.1"), Decimal(2)), ["0.1", "2", "2.0"], ["0.09", "2.1"]),
    (Number(Decimal("1.1"), None, True), ["1.2", "1.11"], ["1.1", "1"]),
    (Number(None, Decimal(2), False, True), ["1.999"], ["2", "2.0"]),
    (String(), ['""', '"5"', '"\\n"'], ["5", "null"]),
    (String(1, 2), ['"a"', '"ab"', '"🙂🙂"'], ['""', '"abc"']),
    (String(pattern="b"), ['"abc"'], ['"ac"']),
    (String(pattern="^b$"), ['"b"'], ['"bc"', '"abc"']),
    (String(format="date"), ['"2024-02-29"'], ['"2024-13-01"', '"today"']),
    (String(format="unheard-of"), ['"today"'], []),
    (
        Enum(("1", '"a"', '{"k": [1, true]}')),
        ["1", "1.0", '"a"', '{"k": [1, true]}'],
        ["true", '"1"'],
    ),
    (Enum(("true",)), ["true"], ["1", '"true"']),
    (
        Array((), Null(), 1, 2),
        ["[null]", "[null, null]"],
        ["[]", "[1]", "[null, null, null]", "{}"],
    ),
    (
        Array((Null(), String()), Integer()),
        ["[]", "[null]", '[null, "a", 1]'],
        ['["a"]', '[null, "a", "b"]'],
    ),
    (Array((Null(),), Nothing()), ["[]", "[null]"], ["[null, null]"]),
    (Object(), ["{}", '{"a": 1}'], ["[]", "null"]),
    (
        Object((("a", Null()),), frozenset("a")),
        ['{"a": null}', '{"a": null, "b": 1}'],
        ["{}", '{"a": 1}'],
    ),
    (Object((("a", Null()),), frozenset(), Nothing()), ["{}", '{"a": null}'], ['{"b": null}']),
    (
        Object((), frozenset("a"), Null()),
        ['{"a": null}'],
        ["{}", '{"a": 1}', '{"a": null, "b": 1}'],
    ),
    (Object((), min_properties=1, max_properties=1), ['{"a": 1}'], ["{}", '{"a": 1, "b": 1}']),
    (Union((Null(), String())), ["null", '"a"'], ["1", "true"]),
    (Ref("list"), ["null", "[null]", "[[null], null]"], ["[1]", "1"]),
]
SCHEMA = Schema(Ref("list"), {"list": Union((Null(), Array((), Ref("list"))))}, (), True)


@pytest.mark.parametrize(("node", "accepted", "refused"), CASES)
def test_a_node_accepts_what_it_stands_for(node, accepted, refused):
    verdicts = {text: matches(SCHEMA, node, json.loads(text)) for text in (*accepted, *refused)}

    assert verdicts == dict.fromkeys(accepted, True) | dict.fromkeys(refused, False)


def test_a_value_nested_too_deeply_to_look_at_is_refused():
    deep = None
    for _ in range(100_000):
        deep = [deep]

    assert not matches(SCHEMA, SCHEMA.root, deep)


@pytest.mark.parametrize("bound", [Decimal(0), Decimal("0.5")])
def test_an_integer_may_have_more_digits_than_python_writes(bound):
    assert matches(SCHEMA, Number(bound), 10**5000)
    assert not matches(SCHEMA, Number(bound), -(10**5000))


def test_a_value_that_options_multiply_on_is_refused(monkeypatch):
    monkeypatch.setattr("toolcall.schema.match.Work", lambda: Work(20_000))
    again = (("a", Ref("A")),)
    options = Union((Object(again), Object(again, frozenset("a")), Null()))
    schema = Schema(Ref("A"), {"A": options}, (), {})

    assert not matches(schema, Ref("A"), json.loads('{"a": ' * 40 + "1" + "}" * 40))
    assert matches(schema, Ref("A"), json.loads('{"a": ' * 40 + "null" + "}" * 40))
