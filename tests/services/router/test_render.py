"""Chat templates: equal to the transformers package, with both models, and clear refusals."""

import json
import subprocess
import sys

import pytest

from launcher import model
from router.errors import ContextTooLong, InvalidRequest
from router.render import Renderer

CONVERSATIONS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "<b>&amp; 漢 🙂"}],
    [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b\n"},
        {"role": "user", "content": " c "},
    ],
]
REFERENCE = """
import json, sys
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
for messages in json.load(sys.stdin):
    print(json.dumps(tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False)))
"""


ONE_MESSAGE = [{"role": "user", "content": "<é>"}]
TOOLS = [{"type": "function", "function": {"name": "wé", "description": "<b> & 'c'"}}]
TEMPLATES = [
    "{{ tools | tojson }}",
    "{{ tools | tojson(separators=(',', ':')) }}",
    "{{ tools | tojson(indent=2, sort_keys=true) }}",
    "{{ tools | tojson(true) }}",
    "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ messages[0].content }}{{ x }}"
    "{% endgeneration %}{{ x }}",
    "{% for m in [1, 2, 3] %}{% if m == 2 %}{% continue %}{% endif %}{{ m }}{% endfor %}",
    "  {%- if tools %}\n  {{ tools[0].function.name }}\n{% endif %}\n",
]
TEMPLATES_REFERENCE = """
import json, sys
from transformers.utils.chat_template_utils import render_jinja_template
messages, tools, templates = json.load(sys.stdin)
for template in templates:
    (text,), _ = render_jinja_template([messages], tools=tools, chat_template=template)
    print(json.dumps(text))
"""


@pytest.mark.engine  # the transformers package takes seconds to import
def test_templates_say_what_they_say_in_transformers(tmp_path):
    folder = model.ensure("smollm2")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (tmp_path / name).symlink_to(folder / name)

    def rendered(template: str) -> str:
        (tmp_path / "chat_template.jinja").write_text(template)
        return Renderer(tmp_path, 100).render_chat(ONE_MESSAGE, TOOLS)

    ours = [rendered(template) for template in TEMPLATES]

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TEMPLATES_REFERENCE],
        input=json.dumps([ONE_MESSAGE, TOOLS, TEMPLATES]),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert ours == [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.engine  # the transformers package takes seconds to import
@pytest.mark.parametrize("name", ["smollm2", "smollm2-glm"])
def test_prompts_equal_those_of_transformers(name):
    folder = model.ensure(name)
    renderer = Renderer(folder, 8192)

    ours = [renderer.tokenize(renderer.render_chat(each), "messages") for each in CONVERSATIONS]

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", REFERENCE, folder],
        input=json.dumps(CONVERSATIONS),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    theirs = [tuple(json.loads(line)) for line in done.stdout.splitlines()]
    assert ours == theirs


def test_glm_tokens_are_single_and_end_a_turn():
    renderer = Renderer(model.ensure("smollm2-glm"), 8192)

    for token in ("<think>", "</think>", "<tool_call>", "<arg_key>", "<|user|>", "[gMASK]"):
        assert len(renderer.tokenize(token, "prompt")) == 1, token
    (user,) = renderer.tokenize("<|user|>", "prompt")
    assert user in renderer.eos_token_ids


def test_glm_tool_calls_are_rendered_with_their_arguments():
    renderer = Renderer(model.ensure("smollm2-glm"), 8192)
    call = {"function": {"name": "weather", "arguments": {"city": "Paris", "days": 3}}}

    text = renderer.render_chat(
        [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "sunny"},
        ],
        tools=[{"type": "function", "function": {"name": "weather"}}],
    )

    assert "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>" in text
    assert "<arg_value>3</arg_value>\n</tool_call><|observation|>\n<tool_response>\nsunny" in text
    assert text.endswith("<|assistant|>\n")


def test_a_prompt_without_room_for_an_answer_names_both_lengths():
    renderer = Renderer(model.ensure("smollm2"), 10)

    with pytest.raises(ContextTooLong, match=r"holds 10 tokens.*alone has 12 tokens"):
        renderer.check_length(tuple(range(12)), "messages")


def test_an_empty_prompt_and_foreign_token_ids_are_refused():
    renderer = Renderer(model.ensure("smollm2"), 100)

    with pytest.raises(InvalidRequest, match="has no tokens"):
        renderer.tokenize("", "prompt")
    with pytest.raises(InvalidRequest, match=r"0\.\.49151, got 1\.\.49152"):
        renderer.check_length((1, 49152), "prompt")


def test_a_message_that_the_template_cannot_take_is_the_callers_fault():
    renderer = Renderer(model.ensure("smollm2"), 100)

    with pytest.raises(InvalidRequest, match="cannot render"):
        renderer.render_chat([{"role": "user", "content": {"not": "text"}}])
