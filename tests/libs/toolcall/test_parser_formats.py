"""What is particular to a family's format, each in every split, with calls held and live."""

import pytest

from tests.libs.toolcall.answers import MARKS, NO_MARKS, Case, check, plan, schema_of
from toolcall.events import ArgumentsDelta
from toolcall.formats.render import render_calls
from toolcall.formats.table import FORMATS
from toolcall.plan import OutputPlan, Tool, ToolChoice
from toolcall.schema.normalise import normalise

W = schema_of({"city": {"type": "string"}}, required=["city"])
NOW = schema_of()
TYPED = schema_of(
    {"s": {"type": "string"}, "n": {"type": "integer"}, "u": {"type": ["string", "integer"]}}
)
TOOLS = {"w": W, "now": NOW, "typed": TYPED}
PARIS = [("w", '{"city": "Paris"}')]
KIMI_BEGIN, KIMI_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
KIMI_NOW = "<|tool_call_begin|>functions.now:7<|tool_call_argument_begin|>{}<|tool_call_end|>"
DSML = "<｜DSML｜"
V31_NOW = "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"

ANSWERS = {
    "hermes": (
        "hermes",
        'Hi.\n<tool_call>\n{"name": "w", "arguments": {"city": "Paris"}}\n</tool_call>',
        {"content": "Hi.", "calls": PARIS},
    ),
    "hermes, arguments before the name": (
        "hermes",
        '<tool_call>{"arguments": {"city": "Paris"}, "name": "w"}</tool_call>',
        {"calls": PARIS},
    ),
    "hermes, values as written": (
        "hermes",
        '<tool_call>{"name":"w","arguments":{ "city":"\\u00e9\\"}{" }}</tool_call>',
        {"calls": [("w", '{ "city":"\\u00e9\\"}{" }')]},
    ),
    "hermes, no arguments": (
        "hermes",
        '<tool_call>{"name": "now"}</tool_call>',
        {"calls": [("now", "{}")]},
    ),
    "hermes, an argument twice": (
        "hermes",
        '<tool_call>{"name": "w", "arguments": {"city": "A", "c\\u0069ty": "B"}}</tool_call>',
        {"fault": "invalid_arguments"},
    ),
    "hermes, another key": (
        "hermes",
        '<tool_call>{"name": "now", "id": 1, "arguments": {}}</tool_call>',
        {"fault": "malformed_call"},
    ),
    "hermes, arguments in a string": (
        "hermes",
        '<tool_call>{"name": "w", "arguments": "{}"}</tool_call>',
        {"fault": "malformed_call"},
    ),
    "hermes, no closing tag": (
        "hermes",
        '<tool_call>{"name": "now", "arguments": {}}',
        {"fault": "malformed_call"},
    ),
    "hermes, a tag in a string": (
        "hermes",
        '<tool_call>{"name": "w", "arguments": {"city": "</tool_call>"}}</tool_call>',
        {"fault": "malformed_call"},
    ),
    "hermes, a tag in a string as text": (
        "hermes",
        '<tool_call>{"name": "w", "arguments": {"city": "⟨/tool_call⟩"}}</tool_call>',
        {"calls": [("w", '{"city": "</tool_call>"}')]},
    ),
    "qwen": (
        "qwen3_coder",
        "<tool_call>\n<function=w>\n<parameter=city>\n\n a</parameter>\n\n</parameter>\n"
        "</function>\n</tool_call>",
        {"calls": [("w", '{"city": "\\n a</parameter>\\n"}')]},
    ),
    "qwen, typed": (
        "qwen3_coder",
        "<tool_call>\n<function=typed>\n<parameter=s>\n1\n</parameter>\n<parameter=n>\n1\n"
        "</parameter>\n<parameter=u>\n1\n</parameter>\n</function>\n</tool_call>",
        {"calls": [("typed", '{"s": "1", "n": 1, "u": 1}')]},
    ),
    "deepseek v3": (
        "deepseek_v3",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>w\n```json\n"
        '{"city": "\\n```"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        {"calls": [("w", '{"city": "\\n```"}')]},
    ),
    "deepseek v3.1, text around": (
        "deepseek_v31",
        f"A<｜tool▁calls▁begin｜>{V31_NOW}\n{V31_NOW}<｜tool▁calls▁end｜>B",
        {"content": "AB", "calls": [("now", "{}"), ("now", "{}")]},
    ),
    "deepseek v3.1, no arguments at all": (
        "deepseek_v31",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜><｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        {"calls": [("now", "{}")]},
    ),
    "deepseek v3.1, no end of the section": (
        "deepseek_v31",
        f"<｜tool▁calls▁begin｜>{V31_NOW}",
        {"calls": [("now", "{}")]},
    ),
    "deepseek v3.1, an empty section": (
        "deepseek_v31",
        "<｜tool▁calls▁begin｜>",
        {"fault": "malformed_call"},
    ),
    "deepseek v3.1, text in the section": (
        "deepseek_v31",
        f"<｜tool▁calls▁begin｜>{V31_NOW} and {V31_NOW}<｜tool▁calls▁end｜>",
        {"fault": "malformed_call", "calls": [("now", "{}")]},
    ),
    "deepseek v3.2, types said by the tags": (
        "deepseek_v32",
        f'Hi\n\n{DSML}function_calls>\n{DSML}invoke name="typed">\n'
        f'{DSML}parameter name="u" string="true">1</｜DSML｜parameter>\n'
        f'{DSML}parameter name="n" string="false">1</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        {"content": "Hi", "calls": [("typed", '{"u": "1", "n": 1}')]},
    ),
    "deepseek v3.2, a wrong type said": (
        "deepseek_v32",
        f'{DSML}function_calls>{DSML}invoke name="typed">'
        f'{DSML}parameter name="n" string="true">1</｜DSML｜parameter>',
        {"fault": "malformed_call"},
    ),
    "deepseek v3.2, no arguments": (
        "deepseek_v32",
        f'{DSML}function_calls>\n{DSML}invoke name="now">\n\n</｜DSML｜invoke>\n'
        "</｜DSML｜function_calls>",
        {"calls": [("now", "{}")]},
    ),
    "kimi": (
        "kimi_k2",
        f"{KIMI_BEGIN}{KIMI_NOW}{KIMI_END}",
        {"calls": [("now", "{}")]},
    ),
    "kimi, section tags in the singular": (
        "kimi_k2",
        f"A<|tool_call_section_begin|>\n{KIMI_NOW}<|tool_call_section_end|>",
        {"content": "A", "calls": [("now", "{}")]},
    ),
    "kimi, such a tag mentioned": (
        "kimi_k2",
        "A <|tool_call_section_begin|> B",
        {"content": "A <|tool_call_section_begin|> B"},
    ),
    "kimi, a call without a section": (
        "kimi_k2",
        f"A{KIMI_NOW}",
        {"content": "A", "calls": [("now", "{}")]},
    ),
    "kimi, no number": (
        "kimi_k2",
        f"{KIMI_BEGIN}<|tool_call_begin|>functions.now<|tool_call_argument_begin|>{{}}",
        {"fault": "malformed_call"},
    ),
    "llama": (
        "llama3_json",
        '\n{"name": "w", "parameters": {"city": "Paris"}}; {"name": "now", "parameters": {}}',
        {"calls": [*PARIS, ("now", "{}")]},
    ),
    "llama, with its token": (
        "llama3_json",
        '<|python_tag|>{"name": "w", "parameters": {"city": "Paris"}}',
        {"calls": PARIS},
    ),
    "llama, its token later": (
        "llama3_json",
        'Hi <|python_tag|>{"name": "now", "parameters": {}}',
        {"content": "Hi", "calls": [("now", "{}")]},
    ),
    "llama, code after its token": (
        "llama3_json",
        '<|python_tag|>brave_search.call(query="x")',
        {"fault": "malformed_call"},
    ),
    "llama, an undeclared call": (
        "llama3_json",
        '{"name": "nope", "parameters": {}}',
        {"fault": "undeclared_tool"},
    ),
    "llama, JSON that is no call": (
        "llama3_json",
        '{"name": "w", "age": 3}',
        {"content": '{"name": "w", "age": 3}'},
    ),
    "llama, a brace": ("llama3_json", " {x} ", {"content": " {x} "}),
    "llama, text after a call": (
        "llama3_json",
        '{"name": "now", "parameters": {}} Done {',
        {"content": " Done {", "calls": [("now", "{}")]},
    ),
    "llama, a separator without a call": (
        "llama3_json",
        '{"name": "now", "parameters": {}}; Done',
        {"fault": "malformed_call", "calls": [("now", "{}")]},
    ),
    "a list": (
        "json",
        '[ {"name": "w", "arguments": {"city": "Paris"}},\n {"name": "now", "arguments": {}} ]',
        {"calls": [*PARIS, ("now", "{}")]},
    ),
    "a list of numbers": ("json", "[1, 2]", {"content": "[1, 2]"}),
    "a list that ends with a comma": (
        "json",
        '[{"name": "now", "arguments": {}},]',
        {"fault": "malformed_call", "calls": [("now", "{}")]},
    ),
}


@pytest.mark.parametrize(("name", "written", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_is_the_same_in_every_split(name, written, expected):
    check(Case(plan(TOOLS), FORMATS[name], MARKS, "after_reasoning"), written, expected)


OPEN_REASONING = {
    "hermes": '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
    "qwen3_coder": "<tool_call>\n<function=now>\n</function>\n</tool_call>",
    "deepseek_v31": f"<｜tool▁calls▁begin｜>{V31_NOW}<｜tool▁calls▁end｜>",
    "kimi_k2": f"{KIMI_BEGIN}{KIMI_NOW}{KIMI_END}",
}


@pytest.mark.parametrize("marks", [MARKS, NO_MARKS], ids=["tokens", "text"])
@pytest.mark.parametrize(("name", "written"), OPEN_REASONING.items(), ids=OPEN_REASONING)
def test_a_call_ends_open_reasoning_in_every_family(name, written, marks):
    check(
        Case(plan(TOOLS), FORMATS[name], marks),
        f"think\n\n{written}",
        {"reasoning": "think", "calls": [("now", "{}")]},
    )


@pytest.mark.parametrize("name", OPEN_REASONING)
def test_an_opening_tag_in_reasoning_is_a_mention_without_a_call(name):
    opening = FORMATS[name].section_open or FORMATS[name].call_open

    check(
        Case(plan(TOOLS), FORMATS[name]),
        f"say {opening}now!</think>Hi",
        {"reasoning": f"say {opening}now!", "content": "Hi"},
    )


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "json"])
def test_when_no_call_may_be_made_none_shows(name):
    """`json` has no tag or token that would tell a call from an answer in JSON."""
    token = "<|python_tag|>" if name == "llama3_json" else ""
    written = f"Hi\n{token}{render_calls(FORMATS[name], [('now', {}), ('w', {'city': 'P'})])}"

    for request in (plan(), plan(TOOLS, tool_choice="none")):
        case = Case(request, FORMATS[name], MARKS, "after_reasoning")
        whole = case.read([case.wire(written)])
        assert (whole.content, whole.calls, whole.finish) == ("Hi", [], "stop")
        assert case.read(list(case.wire(written))) == whole


@pytest.mark.parametrize("name", ["a.b", "a:1", "functions.x", "b:2:3"])
def test_kimi_names_may_hold_what_divides_its_ids(name):
    schema = normalise(W, is_closed=True)
    declared = OutputPlan((Tool(name, schema, {}, "tools[0].function"),), ToolChoice("auto"))
    written = (
        f"{KIMI_BEGIN}<|tool_call_begin|>functions.{name}:12<|tool_call_argument_begin|>"
        f'{{"city": "Paris"}}<|tool_call_end|>{KIMI_END}'
    )

    check(
        Case(declared, FORMATS["kimi_k2"], MARKS, "after_reasoning"),
        written,
        {"calls": [(name, '{"city": "Paris"}')]},
    )


def test_a_call_whose_name_comes_last_is_held():
    case = Case(plan(TOOLS), FORMATS["hermes"], MARKS, "after_reasoning", frozenset({"w"}))
    parser = case.parser()

    before = parser.push(case.wire('<tool_call>{"arguments": {"city": "P"}, "name": "w"'))
    after = parser.push(case.wire("}</tool_call>"))

    assert before == []
    assert ArgumentsDelta(0, '{"city": "P"}') in after
