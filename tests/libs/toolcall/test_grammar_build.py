"""Whole answers under a grammar: every format, choice of tools, and way to begin."""

import time

import pytest

from tests.libs.toolcall.matching import (
    MARKS,
    NO_MARKS,
    accepts,
    allowed_after,
    is_begun,
)
from toolcall.errors import GrammarTooLarge, ToolCallError
from toolcall.formats.render import render_call, render_calls
from toolcall.formats.table import FORMATS, GLM_45, GLM_47, HERMES, LLAMA_3, QWEN_CODER
from toolcall.grammar import build as build_module
from toolcall.grammar.build import build, needs_grammar
from toolcall.grammar.objects import MOST_STEPS, window_for
from toolcall.marks import Marks
from toolcall.requests import plan_output

STR, INT, BOOL = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
CITY = {"type": "object", "properties": {"city": STR, "days": INT}, "required": ["city"]}
PLACE = {
    "type": "object",
    "properties": {
        "at": {"type": "object", "properties": {"x": INT, "y": INT}, "required": ["x", "y"]},
        "tags": {"type": "array", "items": STR},
        "note": {"type": ["string", "null"]},
    },
    "required": ["at"],
}
WIDE = {"type": "object", "properties": {f"k{at}": INT for at in range(8)}}
FORMS = [
    pytest.param(row, marks, id=f"{name}, {kind}")
    for name, row in FORMATS.items()
    for kind, marks in (("tokens", MARKS), ("text", NO_MARKS))
]


def tool(name, parameters, **extra):
    """A tool as clients declare it."""
    return {"type": "function", "function": {"name": name, "parameters": parameters, **extra}}


W, P, NOW = tool("w", CITY), tool("place", PLACE), tool("now", {"type": "object"})
TOOLS = [W, P]
PARIS = ("w", {"city": "Paris <b>", "days": 3})
HERE = ("place", {"at": {"y": 2, "x": 1}, "tags": ["a", "<b>"], "note": None})


def plan(tools=TOOLS, choice="required", *, is_parallel=True, structure=None):
    """A plan for these tools."""
    return plan_output(
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=is_parallel,
        response_format=structure,
    )


def named(name):
    """The choice of one tool by its name."""
    return {"type": "function", "function": {"name": name}}


# ---- Every format -------------------------------------------------------------------------------


@pytest.mark.parametrize(("row", "marks"), FORMS)
def test_what_a_template_writes_is_accepted(row, marks):
    ebnf = build(plan(), row, marks, "after_reasoning").ebnf

    for calls in ([PARIS], [HERE], [PARIS, HERE], [HERE, PARIS, PARIS], [("w", {"city": ""})]):
        assert accepts(ebnf, marks.encode(render_calls(row, calls))), calls


@pytest.mark.parametrize(("row", "marks"), FORMS)
@pytest.mark.parametrize(
    "call",
    [
        ("wether", {"city": "P"}),
        ("w", {"days": 3}),
        ("w", {"city": "P", "days": 1.5}),
        ("w", {"city": "P", "wind": "N"}),
        ("place", {"at": {"x": 1}}),
        ("place", {"at": {"x": 1, "y": 2, "z": 3}}),
        ("place", {"at": {"x": 1, "y": 2}, "tags": [1]}),
    ],
)
def test_a_call_that_its_schema_forbids_is_refused(row, marks, call):
    ebnf = build(plan(), row, marks, "after_reasoning").ebnf

    assert not accepts(ebnf, marks.encode(render_calls(row, [call])))
    assert not accepts(ebnf, marks.encode(render_calls(row, [PARIS, call])))


@pytest.mark.parametrize(("row", "marks"), FORMS)
def test_a_call_that_is_cut_off_is_begun_but_not_whole(row, marks):
    ebnf = build(plan(), row, marks, "after_reasoning").ebnf
    whole = marks.encode(render_calls(row, [PARIS]))

    for length in range(1, len(whole), 3):
        assert is_begun(ebnf, whole[:length])
        assert not accepts(ebnf, whole[:length]) or whole[:length].strip() == whole.strip()


@pytest.mark.parametrize(("row", "marks"), FORMS)
def test_a_forced_call_stands_alone(row, marks):
    ebnf = build(plan(), row, marks, "after_reasoning").ebnf
    call = marks.encode(render_calls(row, [PARIS]))

    assert accepts(ebnf, f"\n\n{call}")
    for text in ("", "Hello", f"Sure. {call}", f"{call} Done.", f"{call}\n\nDone."):
        assert not accepts(ebnf, text), text


@pytest.mark.parametrize(("row", "marks"), FORMS)
def test_an_answer_of_the_models_choice_is_text_then_calls(row, marks):
    ebnf = build(plan(choice="auto"), row, marks, "after_reasoning").ebnf
    call = marks.encode(render_calls(row, [PARIS, HERE]))

    for text in ("", "Hello", 'So: {"a": [1]} and <b>, 3 < 4.\n', call, f"\n{call}"):
        assert accepts(ebnf, text), text
    if not row.starts_the_answer:
        assert accepts(ebnf, f"Sure.\n{call}")
        assert not accepts(ebnf, f"{call} Done.")
        assert not accepts(ebnf, f"Sure.\n{marks.encode(render_calls(row, [('w', {})]))}")


@pytest.mark.parametrize("row", [row for row in FORMATS.values() if row.starts_the_answer])
def test_text_does_not_begin_as_a_call_where_calls_have_no_tags(row):
    ebnf = build(plan(choice="auto"), row, MARKS, "after_reasoning").ebnf
    opening = row.section_open

    for text in ("{}", "[1]", '{"city": 5}', '{"names": 1', f"{opening}{{", "[link](x)", "{ }"):
        assert accepts(ebnf, text), text
    for text in (f'{opening}{{"name": 1}}', f'\n{opening} {{ "name"', f"{opening}{{}}{{"):
        assert not accepts(ebnf, text) or "name" not in text, text


def test_glm_may_write_its_lines_either_way():
    for row in (GLM_45, GLM_47):
        for marks in (MARKS, NO_MARKS):
            ebnf = build(plan(), row, marks, "after_reasoning").ebnf
            for other in (GLM_45, GLM_47):
                assert accepts(ebnf, marks.encode(render_calls(other, [PARIS, HERE])))


def test_kimi_numbers_its_calls_on():
    row = FORMATS["kimi_k2"]
    ebnf = build(plan(), row, MARKS, "after_reasoning").ebnf

    def answer(*numbers):
        calls = "".join(render_call(row, *PARIS, number=number) for number in numbers)
        return MARKS.encode(f"{row.section_open}{calls}{row.section_close}")

    assert accepts(ebnf, answer(0, 17, 4))
    assert not accepts(ebnf, answer("x"))


def test_deepseek_says_which_values_are_strings():
    row = FORMATS["deepseek_v32"]
    union = tool("u", {"type": "object", "properties": {"x": {"type": ["string", "integer"]}}})
    ebnf = build(plan([union]), row, MARKS, "after_reasoning").ebnf

    def answer(is_string, value):
        text = render_calls(row, [("u", {"x": "VALUE"})]).replace("VALUE", value)
        return MARKS.encode(text.replace('"true"', f'"{is_string}"'))

    assert accepts(ebnf, answer("true", "5"))
    assert accepts(ebnf, answer("false", "5"))
    assert accepts(ebnf, answer("true", "five"))
    assert not accepts(ebnf, answer("false", "five"))
    assert not accepts(ebnf, answer("false", '"five"'))


def test_a_bare_closing_tag_is_a_string_where_the_tag_has_a_line_of_its_own():
    code = tool("c", {"type": "object", "properties": {"s": STR, "n": INT}, "required": ["s"]})
    ebnf = build(plan([code]), QWEN_CODER, MARKS, "after_reasoning").ebnf

    def answer(value):
        text = render_calls(QWEN_CODER, [("c", {"s": "VALUE"})])
        return MARKS.encode(text).replace("VALUE", value)

    for value in ("a </parameter> b", "</parameter>", "\n</parameter>x", "x\n</parameter"):
        assert accepts(ebnf, answer(value)), value
    hidden = "x\n</parameter>\n<parameter=n>\nno"
    assert not accepts(ebnf, answer(hidden))


# ---- Tool choice, parallel calls ----------------------------------------------------------------


def test_a_named_tool_is_called_once():
    ebnf = build(plan(choice=named("w")), GLM_47, MARKS, "after_reasoning").ebnf

    assert accepts(ebnf, MARKS.encode(render_calls(GLM_47, [PARIS])))
    for calls in ([HERE], [PARIS, PARIS], []):
        assert not accepts(ebnf, MARKS.encode(render_calls(GLM_47, calls)))


@pytest.mark.parametrize("choice", ["required", "auto"])
def test_without_parallel_calls_there_is_one_at_most(choice):
    ebnf = build(plan(choice=choice, is_parallel=False), GLM_47, MARKS, "after_reasoning").ebnf

    assert accepts(ebnf, MARKS.encode(render_calls(GLM_47, [PARIS])))
    assert not accepts(ebnf, MARKS.encode(render_calls(GLM_47, [PARIS, HERE])))


@pytest.mark.parametrize(("row", "marks"), FORMS)
def test_without_calls_their_opening_cannot_be_written(row, marks):
    ebnf = build(plan(choice="none"), row, marks, "after_reasoning").ebnf
    call = marks.encode(render_calls(row, [PARIS]))

    assert accepts(ebnf, "Hello <b>")
    assert not accepts(ebnf, call)
    assert row.starts_the_answer or not accepts(ebnf, f"Hello {call}")


def test_in_free_text_only_control_tokens_are_out_of_reach():
    without_calls = build(plan(choice="none"), GLM_47, MARKS, "after_reasoning").ebnf
    with_calls = build(plan(choice="auto"), GLM_47, MARKS, "after_reasoning").ebnf
    stop, call = MARKS.token_of("<|im_end|>"), MARKS.token_of("<tool_call>")

    assert allowed_after(without_calls, "Hi") & set(MARKS.token_ids) == {stop}
    assert allowed_after(with_calls, "Hi") & set(MARKS.token_ids) == {stop, call}
    assert len(allowed_after(with_calls, "Hi")) > 49_000


def test_in_a_string_only_its_closing_tag_is_in_reach():
    ebnf = build(plan(), GLM_47, MARKS, "after_reasoning").ebnf
    begun = MARKS.encode("<tool_call>w<arg_key>city</arg_key><arg_value>Pa")

    controls = allowed_after(ebnf, begun) & set(MARKS.token_ids)

    assert controls == {MARKS.token_of("</arg_value>")}


# ---- Reasoning ----------------------------------------------------------------------------------


def test_reasoning_that_is_yet_to_come_may_be_left_out():
    ebnf = build(plan(choice="auto"), GLM_47, MARKS, "fresh").ebnf
    call = MARKS.encode(render_calls(GLM_47, [PARIS]))

    for answer in (
        "Hi",
        call,
        f"<think>t</think>{call}",
        "\n<think></think>\nHi",
        "<think>t</think>",
    ):
        assert accepts(ebnf, MARKS.encode(answer)), answer
    assert not accepts(ebnf, MARKS.encode("<think>t"))
    assert not accepts(ebnf, MARKS.encode(f"<think>{call}</think>"))
    assert not accepts(ebnf, MARKS.encode("Hi<think>t</think>"))


def test_open_reasoning_has_to_be_closed():
    ebnf = build(plan(), GLM_47, MARKS, "in_reasoning").ebnf
    call = MARKS.encode(render_calls(GLM_47, [PARIS]))

    assert accepts(ebnf, f"t <tool_call> spelt{MARKS.encode('</think>')}\n{call}")
    assert not accepts(ebnf, call)
    assert not accepts(ebnf, f"t{MARKS.encode('</think>')}Hi")


def test_reasoning_in_text_ends_at_its_closing_tag():
    ebnf = build(plan(), GLM_47, NO_MARKS, "fresh").ebnf
    call = render_calls(GLM_47, [PARIS])

    assert accepts(ebnf, f"<think>a < b</think>\n{call}")
    assert not accepts(ebnf, f"<think>a</think>b</think>{call}")


@pytest.mark.parametrize("row", [row for row in FORMATS.values() if row.reasoning])
def test_calls_may_be_text_where_reasoning_is_closed_by_a_token(row):
    close = MARKS.token_of("</think>")
    ebnf = build(plan(choice="auto"), row, Marks({close: "</think>"}), "in_reasoning").ebnf
    call = render_calls(row, [PARIS, HERE])

    for body in (call, f"Sure < \n{call}", "Hello", f"a <{call}"):
        assert accepts(ebnf, f"hm <\n{MARKS.mark_of(close)}{body}"), body
    assert not accepts(ebnf, f"hm{MARKS.mark_of(close)}{render_calls(row, [('w', {})])}")


def test_a_format_without_reasoning_has_none():
    ebnf = build(plan(), LLAMA_3, MARKS, "fresh").ebnf

    assert not is_begun(ebnf, MARKS.encode("<think>"))


# ---- Structured content -------------------------------------------------------------------------

OBJECT = {"type": "json_schema", "json_schema": {"name": "o", "schema": CITY, "strict": False}}


def test_structured_content_may_give_way_to_calls_of_the_models_choice():
    ebnf = build(plan(choice="auto", structure=OBJECT), GLM_47, MARKS, "after_reasoning").ebnf

    assert accepts(ebnf, '{"city": "Paris"}')
    assert accepts(ebnf, MARKS.encode(render_calls(GLM_47, [PARIS])))
    for answer in ("Hello", "", '{"city": 5}', 'Sure: {"city": "Paris"}'):
        assert not accepts(ebnf, answer), answer


def test_a_required_call_leaves_no_room_for_structured_content():
    ebnf = build(plan(structure=OBJECT), GLM_47, MARKS, "after_reasoning").ebnf

    assert accepts(ebnf, MARKS.encode(render_calls(GLM_47, [PARIS])))
    assert not accepts(ebnf, '{"city": "Paris"}')


@pytest.mark.parametrize(
    ("guided", "good", "bad"),
    [
        ({"guided_regex": "[a-c]+|x$"}, ["abc", "x"], ["", "abcd", "ax"]),
        ({"guided_choice": ["yes", 'no "way"']}, ["yes", 'no "way"'], ["", "no", "yes."]),
        ({"guided_choice": ["\nyes", "no"]}, ["\nyes", "no"], ["yes", "\nno", "\n\nyes"]),
        ({"guided_regex": "\n\nab"}, ["\n\nab"], ["ab", "\nab", "\n\n\nab"]),
        ({"guided_json": {"enum": [1, "a"]}}, ["1", '"a"'], ["a", "2"]),
    ],
)
def test_other_structures_hold_for_the_whole_content(guided, good, bad):
    request = plan_output(
        tools=None,
        tool_choice=None,
        parallel_tool_calls=None,
        response_format=None,
        guided=guided,
    )
    ebnf = build(request, None, MARKS, "after_reasoning").ebnf

    assert all(accepts(ebnf, text) for text in good)
    assert not any(accepts(ebnf, text) for text in bad)


def test_structured_content_comes_after_reasoning():
    request = plan(None, None, structure=OBJECT, is_parallel=None)
    ebnf = build(request, HERMES, MARKS, "fresh").ebnf

    assert accepts(ebnf, MARKS.encode('<think>\n{\n</think>\n\n{"city": "P"}'))
    assert not accepts(ebnf, MARKS.encode('<think>t</think>{"days": 1}'))


# ---- Effort, limits -----------------------------------------------------------------------------


@pytest.mark.parametrize(("row", "marks"), FORMS)
def test_the_widest_grammar_checks_names_and_tags_only(row, marks):
    grammar = build(plan(), row, marks, "after_reasoning", effort="widest")

    for call in (PARIS, ("w", {}), ("w", {"days": "x", "k": [1, {}]}), ("place", {"at": "a<b"})):
        assert accepts(grammar.ebnf, marks.encode(render_calls(row, [call]))), call
    assert not accepts(grammar.ebnf, marks.encode(render_calls(row, [("wether", {})])))
    assert not is_begun(grammar.ebnf, marks.encode(f"{render_calls(row, [PARIS])}x"))
    assert grammar.is_widened
    assert grammar.exact_tools == frozenset()


@pytest.mark.parametrize(("row", "marks"), FORMS)
def test_a_tool_that_is_not_strict_takes_any_arguments(row, marks):
    loose = tool("loose", CITY, strict=False)
    grammar = build(plan([loose, W]), row, marks, "after_reasoning")

    assert accepts(grammar.ebnf, marks.encode(render_calls(row, [("loose", {"days": "x"})])))
    assert not accepts(grammar.ebnf, marks.encode(render_calls(row, [("w", {"days": "x"})])))
    assert grammar.exact_tools == {"w"}
    assert not grammar.is_widened


def test_a_grammar_with_too_many_rules_is_widened(monkeypatch):
    monkeypatch.setattr(build_module, "MOST_RULES", 20)

    assert build(plan(), GLM_47, MARKS, "after_reasoning").is_widened
    monkeypatch.setattr(build_module, "MOST_RULES", 3)
    with pytest.raises(GrammarTooLarge):
        build(plan(), GLM_47, MARKS, "after_reasoning")


@pytest.mark.parametrize(
    ("guided", "content"),
    [
        ({"guided_json": WIDE}, '{"any": ["JSON", 1]}'),
        ({"guided_regex": "(ab+c|d){99}"}, "any text"),
    ],
)
def test_a_structure_with_too_many_rules_is_left_to_the_guard(monkeypatch, guided, content):
    structured = plan_output(
        tools=None,
        tool_choice=None,
        parallel_tool_calls=None,
        response_format=None,
        guided=guided,
    )
    monkeypatch.setattr(build_module, "MOST_RULES", 40)

    found = build(structured, None, MARKS, "after_reasoning")

    assert found.is_widened
    assert found.notes
    assert accepts(found.ebnf, content)


def test_the_bounds_that_floats_have_can_be_built():
    """Each decimal is a level of the expression: these would be more than Python's stack takes."""
    numbers = [{"type": "number", "minimum": least} for least in (5e-324, 2.2250738585072014e-308)]
    numbers.append({"type": "number", "minimum": -1.7976931348623157e308, "maximum": 1e308})
    numbers.append({"type": "integer", "minimum": -(10**308), "maximum": 10**308})
    properties = {f"n{at}": each for at, each in enumerate(numbers)}

    found = build(plan([tool("w", {"properties": properties})]), GLM_47, MARKS, "after_reasoning")

    assert not found.is_widened
    assert "w" not in found.exact_tools


def test_windows_shrink_until_all_objects_fit_together():
    assert window_for([4] * 10) == 8
    assert window_for([10] * 10) == 6
    assert window_for([10] * 50) == 3
    assert window_for([10] * 1000) == 1
    assert window_for([]) == 8
    assert 50 * (3 * 3 * 2**2 + 1) <= MOST_STEPS < 50 * (2 * 4 * 2**3 + 2 * 2)


@pytest.mark.parametrize("row", [GLM_47, HERMES])
def test_a_definition_is_written_once_for_all_arguments_that_refer_to_it(row):
    large = {"type": "object", "properties": {f"a{at}": True for at in range(800)}}
    uses = {f"r{at}": {"$ref": "#/$defs/L"} for at in range(400)}
    parameters = {"type": "object", "properties": uses, "$defs": {"L": large}}
    began = time.process_time()

    build(plan([tool("t", parameters)]), row, MARKS, "after_reasoning")

    # A tenth of a second; written again for each of them it takes four.
    assert time.process_time() - began < 2


def test_equal_arguments_of_different_tools_share_their_rules():
    one = build(plan([tool("a", PLACE)]), GLM_47, MARKS, "after_reasoning")
    ten = build(plan([tool(f"t{at}", PLACE) for at in range(10)]), GLM_47, MARKS, "after_reasoning")

    assert ten.rules <= one.rules + 2


def test_free_text_is_not_read_token_by_token_beside_a_rule_that_counts_characters():
    """xgrammar would then take 20 ms for every mask of the text."""
    counting = tool("note", {"type": "object", "properties": {"s": STR | {"maxLength": 500}}})
    free = build(plan(choice="auto"), GLM_47, MARKS, "fresh").ebnf
    limited = build(plan([counting], "auto"), GLM_47, MARKS, "fresh").ebnf
    call = MARKS.encode(render_calls(GLM_47, [("note", {"s": "x" * 500})]))

    assert "ExcludeToken" in free
    assert "max_chars" in limited
    assert "ExcludeToken" not in limited
    for answer in ("", "Hi", call, f"Hi\n{call}", MARKS.encode("<think>t</think>Hi")):
        assert accepts(limited, answer), answer


def test_calls_without_a_format_cannot_be_built():
    with pytest.raises(ToolCallError):
        build(plan(), None, MARKS, "after_reasoning")


def test_what_needs_a_grammar():
    assert needs_grammar(plan(choice="none"))
    assert needs_grammar(plan(None, None, structure=OBJECT, is_parallel=None))
    assert not needs_grammar(plan(None, None, is_parallel=None))
