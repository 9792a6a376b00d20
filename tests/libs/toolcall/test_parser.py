"""The rules of an answer, case by case, each in every split, with calls held and live."""

import pytest

from tests.libs.toolcall.answers import (
    MARKS,
    NO_MARKS,
    Case,
    call,
    check,
    lines,
    one,
    plan,
    schema_of,
)
from toolcall.events import ArgumentsDelta, CallEnded, CallStarted, ContentDelta
from toolcall.formats.table import FORMATS, GLM_45, GLM_47, HERMES
from toolcall.plan import OutputPlan

W = schema_of({"city": {"type": "string"}}, required=["city"])
NOW = schema_of()
DAYS = schema_of({"days": {"type": "integer", "minimum": 1, "maximum": 10}}, required=["days"])

ANSWERS = {
    "C1 a call": ({"w": W}, "t</think>" + call("w", city="Paris"), one("w", '{"city": "Paris"}')),
    "C2 a call in lines": (
        {"w": W},
        "t</think>\n" + lines("w", city="Paris"),
        one("w", '{"city": "Paris"}'),
    ),
    "C3 no arguments": ({"now": NOW}, "t</think>" + call("now"), one("now", "{}")),
    "C4 two calls, a line end between them": (
        {"w": W},
        f"t</think>{call('w', city='P')}\n{call('w', city='R')}",
        {"reasoning": "t", "calls": [("w", '{"city": "P"}'), ("w", '{"city": "R"}')]},
    ),
    "C5 a call after one without arguments": (
        {"now": NOW, "w": W},
        f"t</think>{call('now')}{call('w', city='P')}",
        {"reasoning": "t", "calls": [("now", "{}"), ("w", '{"city": "P"}')]},
    ),
    "C6 an undeclared tool": (
        {"w": W},
        "t</think>" + call("wether", city="P"),
        {"fault": "undeclared_tool"},
    ),
    "C6 an undeclared tool beside a declared one": (
        {"w": W},
        f"t</think>{call('w', city='P')}{call('wether', city='P')}",
        {"fault": "undeclared_tool", "calls": [("w", '{"city": "P"}')]},
    ),
    "C7 a missing argument": ({"w": W}, "t</think>" + call("w"), {"fault": "invalid_arguments"}),
    "C8 no integer": (
        {"f": DAYS},
        "t</think>" + call("f", days="three"),
        {"fault": "invalid_arguments"},
    ),
    "C8 out of bounds": (
        {"f": DAYS},
        "t</think>" + call("f", days="99"),
        {"fault": "invalid_arguments"},
    ),
    "C8 a fraction": (
        {"f": DAYS},
        "t</think>" + call("f", days="5.0"),
        {"fault": "invalid_arguments"},
    ),
    "C8 an underscore": (
        {"f": DAYS},
        "t</think>" + call("f", days="1_000"),
        {"fault": "invalid_arguments"},
    ),
    "C8 an integer": ({"f": DAYS}, "t</think>" + call("f", days="3"), one("f", '{"days": 3}')),
    "C19 an argument twice": (
        {"w": W},
        "t</think><tool_call>w<arg_key>city</arg_key><arg_value>A</arg_value>"
        "<arg_key>city</arg_key><arg_value>B</arg_value></tool_call>",
        {"fault": "invalid_arguments", "calls": []},
    ),
    "C20 a mention in reasoning": (
        {"w": W},
        "maybe <tool_call>? no.</think>Hello",
        {"reasoning": "maybe <tool_call>? no.", "content": "Hello"},
    ),
    "C22 text before and after": (
        {"now": NOW},
        f"t</think>Before.\n\n{call('now')}\nAfter.\n",
        {"reasoning": "t", "content": "Before.\nAfter.\n", "calls": [("now", "{}")]},
    ),
    "a call in open reasoning": (
        {"w": W},
        "I look.\n" + call("w", city="P"),
        {"reasoning": "I look.", "calls": [("w", '{"city": "P"}')]},
    ),
    "a call in open reasoning whose end comes late": (
        {"now": NOW},
        f"I look.{call('now')}\n</think>\nSo.",
        {"reasoning": "I look.", "content": "\n\nSo.", "calls": [("now", "{}")]},
    ),
    "a tool's name mentioned in reasoning": (
        {"now": NOW},
        "say <tool_call>now and go</think>x",
        {"reasoning": "say <tool_call>now and go", "content": "x"},
    ),
    "a missing value tag": (
        {"w": W},
        "</think><tool_call>w<arg_key>city</arg_key>Paris</arg_value></tool_call>",
        {"fault": "malformed_call"},
    ),
    "a missing closing tag": (
        {"w": W},
        "</think><tool_call>w<arg_key>city</arg_key><arg_value>P</tool_call>" + call("w", city="R"),
        {"fault": "malformed_call", "calls": []},
    ),
    "text between tags": (
        {"w": W},
        "</think><tool_call>w<arg_key>city</arg_key><arg_value>P</arg_value>x</tool_call>",
        {"fault": "malformed_call"},
    ),
    "a stray closing tag": ({"w": W}, "t</think>Hi</tool_call>", {"fault": "malformed_call"}),
    "broken JSON that would complete itself": (
        {"f": schema_of({"x": {"type": "integer"}, "y": {"type": "integer"}})},
        "</think>" + call("f", x='1, "y": 2'),
        {"fault": "invalid_arguments"},
    ),
    "a call never closed": ({"w": W}, "t</think><tool_call>w", {"fault": "malformed_call"}),
    "blanks around other values": (
        {"f": schema_of({"x": {"type": "array"}})},
        "t</think>" + call("f", x="\n [1, 2 ] "),
        one("f", '{"x": [1, 2 ]}'),
    ),
    "content of blanks only": ({"w": W}, "t</think>\n \n", {"reasoning": "t", "content": " \n"}),
    "another control token is text": (
        {"w": W},
        "<|user|></think><|user|>" + call("w", city="<|user|>"),
        {
            "reasoning": "<|user|>",
            "content": "<|user|>",
            "calls": [("w", '{"city": "<|user|>"}')],
        },
    ),
}


@pytest.mark.parametrize(("schemas", "written", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_is_the_same_in_every_split(schemas, written, expected):
    check(Case(plan(schemas)), written, expected)


CHOICES = {
    "C23 none with a call": ("none", f"t</think>Hi\n{call('w', city='P')}", {"content": "Hi"}),
    "C23 none with a broken call": ("none", "t</think>Hi<tool_call>w<arg_key>", {"content": "Hi"}),
    "C23 none with stray tags": ("none", "t</think>Hi</arg_value></tool_call>", {"content": "Hi"}),
    "C24 required with prose": ("required", "t</think>Hello", {"fault": "missing_call"}),
    "C24 required with a call": (
        "required",
        "t</think>" + call("w", city="P"),
        {"calls": [("w", '{"city": "P"}')]},
    ),
    "C24 named": (
        {"type": "function", "function": {"name": "w"}},
        "t</think>" + call("w", city="P"),
        {"calls": [("w", '{"city": "P"}')], "finish": "stop"},
    ),
    "C24 named, another one": (
        {"type": "function", "function": {"name": "w"}},
        "t</think>" + call("now"),
        {"fault": "wrong_tool"},
    ),
    "C24 named, prose": (
        {"type": "function", "function": {"name": "w"}},
        "t</think>Hello",
        {"fault": "missing_call"},
    ),
}


@pytest.mark.parametrize(("choice", "written", "expected"), CHOICES.values(), ids=CHOICES)
def test_a_tool_choice_holds(choice, written, expected):
    if "fault" not in expected:
        expected = {"reasoning": "t", **expected}

    check(Case(plan({"w": W, "now": NOW}, tool_choice=choice)), written, expected)


def test_without_parallel_calls_a_second_one_is_a_fault():
    case = Case(plan({"now": NOW}, parallel_tool_calls=False))

    check(
        case,
        "t</think>" + call("now") + call("now"),
        {"fault": "too_many_calls", "calls": [("now", "{}")]},
    )


def test_a_call_nobody_asked_for_is_left_out_when_there_are_no_tools():
    check(Case(plan()), f"t</think>Hi {call('f')}", {"reasoning": "t", "content": "Hi"})


CUTS = {
    "in reasoning": ("thin", {"reasoning": "thin"}),
    "in text": ("t</think>Hi \n", {"reasoning": "t", "content": "Hi \n"}),
    "at a call": ("t</think>Hi <tool_call>", {"reasoning": "t", "content": "Hi"}),
    "in a name": ("t</think><tool_call>n", {"reasoning": "t"}),
    "in a second call": (
        f"t</think>{call('now')}<tool_call>w<arg_key>city",
        {"reasoning": "t", "calls": [("now", "{}")]},
    ),
    "in a value": ("t</think><tool_call>w<arg_key>city</arg_key><arg_value>P", {"reasoning": "t"}),
}


@pytest.mark.parametrize(("written", "expected"), CUTS.values(), ids=CUTS)
def test_an_answer_that_was_cut_has_its_whole_calls_and_says_length(written, expected):
    check(Case(plan({"w": W, "now": NOW})), written, {"finish": "length", **expected}, "length")


STARTS = {
    "C21 no reasoning where none was opened": ("fresh", "It is.", {"content": "It is."}),
    "C21 reasoning that was opened and never closed": (
        "in_reasoning",
        "It is.",
        {"reasoning": "It is."},
    ),
    "opened by the model": ("fresh", "\n<think>t</think>\nHi", {"reasoning": "t", "content": "Hi"}),
    "opened by the model and never closed": ("fresh", "<think>t", {"reasoning": "t"}),
    "opened again by the model": (
        "in_reasoning",
        "<think>t</think>Hi",
        {"reasoning": "t", "content": "Hi"},
    ),
    "switched off": ("after_reasoning", "\nHi", {"content": "Hi"}),
    "no reasoning, then a call": ("fresh", "\n" + call("now"), {"calls": [("now", "{}")]}),
    "one line end is the template's": (
        "in_reasoning",
        "\nt\n</think>\n\n Hi",
        {"reasoning": "\nt\n", "content": "\n Hi"},
    ),
    "the tag as text": (
        "in_reasoning",
        "a ⟨/think⟩ b</think>⟨/think⟩",
        {"reasoning": "a </think> b", "content": "</think>"},
    ),
}


@pytest.mark.parametrize(("start", "written", "expected"), STARTS.values(), ids=STARTS)
def test_reasoning_is_told_from_content(start, written, expected):
    check(Case(plan({"now": NOW}), GLM_45, start=start), written, expected)


def test_a_template_that_sets_reasoning_on_lines_has_its_line_ends_taken_off():
    case = Case(plan({"now": NOW}), HERMES, start="fresh")

    check(
        case,
        "<think>\n\nt\n\n</think>\n\n\nHi",
        {"reasoning": "\nt\n", "content": "\nHi"},
    )


def test_a_model_without_a_format_writes_content_only():
    case = Case(OutputPlan(), None, NO_MARKS, "fresh")

    check(case, "<think>a</think> <tool_call>", {"content": "<think>a</think> <tool_call>"})


STRUCTURES = {
    "a valid object": ('t</think>{"a": 1}', {"reasoning": "t", "content": '{"a": 1}'}),
    "an invalid one": ("t</think>[1]", {"fault": "invalid_content"}),
    "nothing": ("t</think>", {"fault": "invalid_content"}),
    "a call instead": ("t</think>" + call("now"), one("now", "{}")),
    "a call and content of another kind": (
        "t</think>Hi" + call("now"),
        {"fault": "invalid_content"},
    ),
}


@pytest.mark.parametrize(("written", "expected"), STRUCTURES.values(), ids=STRUCTURES)
def test_an_answer_has_the_structure_or_calls(written, expected):
    case = Case(plan({"now": NOW}, response_format={"type": "json_object"}))

    check(case, written, expected)


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_blank_lines_before_a_structured_answer_are_not_its(form):
    case = Case(plan(guided={"guided_choice": ["yes", "no"]}), form, MARKS, "after_reasoning")

    check(case, "\n\nyes", {"content": "yes"})


@pytest.mark.parametrize(
    ("guided", "written"),
    [
        ({"guided_choice": ["\nyes", "no"]}, "\nyes"),
        ({"guided_regex": "\n\n[a-c]+"}, "\n\nab"),
        ({"guided_regex": "\\s*[a-c]+"}, "\nab"),
    ],
)
@pytest.mark.parametrize("form", [GLM_47, HERMES, None], ids=["glm47", "hermes", "none"])
def test_a_structured_answer_keeps_the_line_ends_that_it_begins_with(guided, written, form):
    check(Case(plan(guided=guided), form, MARKS, "after_reasoning"), written, {"content": written})


def test_a_structured_answer_that_was_cut_is_not_judged():
    case = Case(plan(response_format={"type": "json_object"}))

    check(case, 't</think>{"a', {"reasoning": "t", "content": '{"a', "finish": "length"}, "length")


def test_held_calls_leave_whole_and_live_ones_as_they_come():
    text = Case(plan({"w": W})).wire("t</think>" + call("w", city="Paris"))

    def kinds(live_tools):
        parser = Case(plan({"w": W}), live_tools=live_tools).parser()
        return [[type(event) for event in parser.push(character)] for character in text]

    held, live = kinds(frozenset()), kinds(frozenset({"w"}))

    assert held[-1] == [CallStarted, ArgumentsDelta, CallEnded]
    assert not any(ArgumentsDelta in kinds for kinds in held[:-1])
    assert [ArgumentsDelta] * 5 == [kind for kinds in live[-9:-3] for kind in kinds][:5]
    assert live[-1] == [ArgumentsDelta, CallEnded]


@pytest.mark.parametrize("form", ["glm47", "hermes"])
def test_an_argument_that_comes_twice_stops_a_live_call_before_its_second_value(form):
    case = Case(plan({"w": W}), FORMATS[form], start="after_reasoning", live_tools=frozenset({"w"}))
    twice = {
        "glm47": call("w", city="A").replace(
            "</tool_call>", call("", city="B")[len("<tool_call>") :]
        ),
        "hermes": '<tool_call>{"name": "w", "arguments": {"city": "A", "city": "B"}}</tool_call>',
    }

    answer = case.read([case.wire(twice[form])])

    assert answer.fault.kind == "invalid_arguments"
    assert "twice" in answer.fault.message
    assert answer.begun is not None
    assert "B" not in answer.begun[1]


def test_one_push_gives_one_delta_of_a_kind():
    case = Case(plan({"f": schema_of({"x": {"type": "array"}})}), live_tools=frozenset({"f"}))
    events = case.parser().push(
        case.wire('</think>a "b" c' + call("f", x='["a", "b", {"c": "d"}]'))
    )

    assert [type(event) for event in events] == [
        ContentDelta,
        CallStarted,
        ArgumentsDelta,
        CallEnded,
    ]


def test_a_fault_says_where_it_is():
    case = Case(plan({"w": W}))
    written = "</think><tool_call>w<arg_key>city</arg_key>Paris"

    fault = case.read([case.wire(written)]).fault

    assert fault.call == 0
    assert fault.message == "call 0 (w), argument 'city': expected <arg_value>, found 'P'"


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_nothing_comes_after_the_end(form):
    case = Case(plan({"w": W}), form, MARKS, "after_reasoning")
    parser = case.parser()
    parser.finish("stop")

    assert parser.push("more") == []
    assert parser.finish("stop") == []
