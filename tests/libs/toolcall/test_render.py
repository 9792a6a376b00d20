"""Calls as models write them, and back: what was rendered is what is read."""

import json

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.libs.toolcall.answers import MARKS, NO_MARKS, Case, plan, schema_of
from toolcall.errors import ToolCallError
from toolcall.formats.render import render_call, render_calls
from toolcall.formats.table import FORMATS

NAMES = ["w", "now", "get-weather_2"]
STRINGS = ["s", "größe", "a b", "x.y"]
OTHERS = ["j", "0", "$id"]
SCHEMA = schema_of(
    {
        **{key: {"type": "string"} for key in STRINGS},
        **{key: {"type": ["number", "boolean", "null", "array", "object"]} for key in OTHERS},
    }
)
TEXT = st.one_of(st.text(max_size=12), st.text('<>/{}[]"\\\n\r\t &;=｜|_a', max_size=12))
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
).filter(lambda value: not isinstance(value, str))
ARGUMENTS = st.dictionaries(st.sampled_from(STRINGS), TEXT, max_size=4).flatmap(
    lambda strings: st.dictionaries(st.sampled_from(OTHERS), VALUES, max_size=3).map(
        lambda others: {**others, **strings}
    )
)
CALLS = st.lists(st.tuples(st.sampled_from(NAMES), ARGUMENTS), min_size=1, max_size=3)


@pytest.mark.parametrize("marks", [MARKS, NO_MARKS], ids=["tokens", "text"])
@pytest.mark.parametrize("tags", FORMATS.values(), ids=FORMATS)
def test_what_was_rendered_is_read(tags, marks):
    request = plan(dict.fromkeys(NAMES, SCHEMA))

    @settings(
        max_examples=15,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(CALLS, st.booleans(), st.integers(1, 9))
    def check(calls, is_live, size):
        live_tools = frozenset(NAMES if is_live else ())
        case = Case(request, tags, marks, "after_reasoning", live_tools)
        try:
            text = marks.encode(render_calls(tags, calls))
        except ToolCallError:
            assume(False)

        answer = case.read([text[at : at + size] for at in range(0, len(text), size)])

        assert answer.fault is None
        assert answer.content == ""
        assert [(name, json.loads(arguments)) for name, arguments in answer.calls] == calls

    check()


EXAMPLES = {
    "glm47": "<tool_call>w<arg_key>a</arg_key><arg_value>x</arg_value>"
    "<arg_key>b</arg_key><arg_value>[1]</arg_value></tool_call><tool_call>now</tool_call>",
    "glm45": "<tool_call>w\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n"
    "<arg_key>b</arg_key>\n<arg_value>[1]</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
    "hermes": '<tool_call>\n{"name": "w", "arguments": {"a": "x", "b": [1]}}\n</tool_call>\n'
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
    "qwen3_coder": "<tool_call>\n<function=w>\n<parameter=a>\nx\n</parameter>\n"
    "<parameter=b>\n[1]\n</parameter>\n</function>\n</tool_call>\n"
    "<tool_call>\n<function=now>\n</function>\n</tool_call>",
    "deepseek_v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>w\n```json\n"
    '{"a": "x", "b": [1]}\n```<｜tool▁call▁end｜>\n'
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>"
    "<｜tool▁calls▁end｜>",
    "deepseek_v31": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>w<｜tool▁sep｜>{"a": "x", "b": [1]}'
    "<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v32": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="w">\n'
    '<｜DSML｜parameter name="a" string="true">x</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="b" string="false">[1]</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
    '<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.w:0"
    '<|tool_call_argument_begin|>{"a": "x", "b": [1]}<|tool_call_end|>'
    "<|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
    "<|tool_calls_section_end|>",
    "llama3_json": '{"name": "w", "parameters": {"a": "x", "b": [1]}}; '
    '{"name": "now", "parameters": {}}',
    "json": '[{"name": "w", "arguments": {"a": "x", "b": [1]}}, {"name": "now", "arguments": {}}]',
}


@pytest.mark.parametrize(("name", "expected"), EXAMPLES.items(), ids=EXAMPLES)
def test_calls_are_written_as_the_family_writes_them(name, expected):
    calls = [("w", {"a": "x", "b": [1]}), ("now", {})]

    assert render_calls(FORMATS[name], calls) == expected


def test_no_calls_are_no_text():
    assert render_calls(FORMATS["kimi_k2"], []) == ""


def test_a_kimi_call_has_its_number_in_the_conversation():
    assert "functions.now:7<" in render_call(FORMATS["kimi_k2"], "now", {}, 7)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("glm45", "a</arg_value>b"),
        ("qwen3_coder", "a\n</parameter>\nb"),
        ("qwen3_coder", "\n</parameter>"),
    ],
)
def test_a_string_that_would_end_early_is_refused(name, value):
    with pytest.raises(ToolCallError, match="expected a string without"):
        render_call(FORMATS[name], "w", {"a": value})


def test_a_closing_tag_alone_is_no_end_in_a_format_of_lines():
    assert "a</parameter>b" in render_call(FORMATS["qwen3_coder"], "w", {"a": "a</parameter>b"})
