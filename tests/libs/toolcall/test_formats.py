"""A model's wire format is told from its chat template, or asked for by name."""

from dataclasses import replace

import pytest

from tests.conftest import ROOT
from toolcall.errors import ToolCallError
from toolcall.formats.detect import MOST_SPECIFIC_FIRST, by_name, detect
from toolcall.formats.table import FORMATS, GLM_45, HERMES, JSON_LIST, TaggedArguments

THINKS = "{{ '<think>' + message.reasoning_content + '</think>' }}"
GLM_TAIL = "</arg_value>{% endfor %}</tool_call>"
V3_OPEN = "'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>'"
TEMPLATES = {
    "glm47": "<tool_call>{{ c.name }}<arg_key>{{ k }}</arg_key><arg_value>{{ v }}" + GLM_TAIL,
    "glm45": "<tool_call>{{ c.name }}\n<arg_key>{{ k }}</arg_key>\n<arg_value>" + GLM_TAIL,
    "hermes": r"""{{ '<tool_call>\n{"name": "' + c.name + '", "arguments": ' + c.arguments }}""",
    "qwen3_coder": r"""{{ '<tool_call>\n<function=' + c.name + '>\n' }}
        {{ '<parameter=' + k + '>\n' }} and "arguments": somewhere""",
    "deepseek_v3": "{{ "
    + V3_OPEN
    + r""" + 'function' + '<｜tool▁sep｜>' + c.name }}
        {{ '\n' + '```json' + '\n' }}""",
    "deepseek_v31": "{{ " + V3_OPEN + " + c.name + '<｜tool▁sep｜>' }}",
    "deepseek_v32": """{% set dsml = "｜DSML｜" %}<{{ dsml }}function_calls>""",
    "deepseek_v4": """{% set dsml = "｜DSML｜" %}<{{ dsml }}tool_calls>""",
    "deepseek_v41": """{% set dsml = "｜DSML｜" %}<{{ dsml }} calls>""",
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>{{ c.id }}",
    "llama3_json": r"""<|start_header_id|>{{ '{"name": "' + c.name }}{{ '"parameters": ' }}""",
}
NOT_KNOWN = {
    "a chat only": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% endfor %}",
    "reasoning only": "<|assistant|>" + THINKS,
    "Mistral": "[AVAILABLE_TOOLS]{{ tools }}[/AVAILABLE_TOOLS] [TOOL_CALLS]{{ c.arguments }}",
    "Harmony": "<|start|>assistant to=functions.{{ c.name }}<|channel|>commentary json<|message|>",
    "Hunyuan": "<tool_call>{{ c.name }}<tool_sep>\n<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v }}",
    "nothing": "",
}


@pytest.mark.parametrize(("name", "template"), TEMPLATES.items(), ids=TEMPLATES)
def test_a_template_tells_its_format(name, template):
    assert detect(template + THINKS) == FORMATS[name]


@pytest.mark.parametrize("name", TEMPLATES)
def test_tags_in_string_literals_tell_as_much(name):
    written = TEMPLATES[name].replace("\n", "\\n").replace('"', '\\"')

    assert detect(written + THINKS) == FORMATS[name]


def test_a_template_without_reasoning_gives_a_format_without_it():
    assert detect(TEMPLATES["hermes"]) == replace(HERMES, reasoning=None)


@pytest.mark.parametrize("template", NOT_KNOWN.values(), ids=NOT_KNOWN)
def test_a_template_of_another_family_has_no_format(template):
    assert detect(template) is None


def test_the_local_model_writes_as_glm45():
    template = (ROOT / "tools" / "launcher" / "glm_chat_template.jinja").read_text()

    assert detect(template) == GLM_45


def test_every_format_but_the_plain_list_can_be_told():
    assert {*MOST_SPECIFIC_FIRST, JSON_LIST} == set(FORMATS.values())
    assert set(TEMPLATES) == {row.name for row in MOST_SPECIFIC_FIRST}


def test_a_format_has_a_name():
    assert by_name("glm45") == GLM_45
    with pytest.raises(ToolCallError, match=r"expected one of glm47, glm45, .*: 'glm'"):
        by_name("glm")


@pytest.mark.parametrize("row", FORMATS.values(), ids=FORMATS)
def test_the_literal_that_ends_a_string_is_all_or_the_beginning_of_its_closing_tag(row):
    if isinstance(row.arguments, TaggedArguments):
        assert row.arguments.value_close.startswith(row.arguments.string_end)
        assert row.arguments.string_end.strip() == row.arguments.value_close.strip()
