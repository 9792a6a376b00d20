"""The wire formats of tool calls, one table row each; the grammar and the parser read the same row.

A call is `call_open NAME name_close ARGUMENTS call_close`; calls are joined by `separator` and
stand between `section_open` and `section_close`. Literals are written as text; those that a
tokenizer has as control tokens are matched as tokens (`toolcall.marks`), the others as text.
Sources: the models' public chat templates and vLLM 0.32's tool parsers, by fact.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class TaggedArguments:
    """Each argument between tags: `key_open KEY key_close VALUE value_close`.

    A string value is raw text, any other is JSON. `type_tags` (DeepSeek DSML): the literal
    `type_tags[0]` stands for key_close before a raw string and `type_tags[1]` before JSON.
    """

    key_open: str
    key_close: str
    value_close: str
    type_tags: tuple[str, str] | None = None


@dataclass(frozen=True)
class JsonArguments:
    """The arguments are one JSON object after the name."""


@dataclass(frozen=True)
class JsonCall:
    """The whole call is one JSON object that holds name and arguments under these keys."""

    name_key: str = "name"
    arguments_key: str = "arguments"


@dataclass(frozen=True)
class WireFormat:
    """One family's way to write an answer."""

    name: str
    arguments: TaggedArguments | JsonArguments | JsonCall
    call_open: str = ""
    name_close: str = ""
    call_close: str = ""
    separator: str = ""
    section_open: str = ""
    section_close: str = ""
    number_open: str | None = None
    """Kimi writes the call's number (over the whole conversation) between this and name_close."""
    reasoning: tuple[str, str] | None = None
    template_hints: tuple[str, ...] = ()
    """Texts that the chat templates of this format hold, all of them; for detection."""
    starts_the_answer: bool = False
    """True where a call can only be told from content at the very start of the answer (Llama)."""


THINK = ("<think>", "</think>")

GLM_47 = WireFormat(
    name="glm47",
    arguments=TaggedArguments("<arg_key>", "</arg_key><arg_value>", "</arg_value>"),
    call_open="<tool_call>",
    call_close="</tool_call>",
    reasoning=THINK,
    template_hints=("<arg_key>", "</arg_key><arg_value>"),
)
GLM_45 = replace(
    GLM_47,
    name="glm45",
    arguments=TaggedArguments("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"),
    name_close="\n",
    separator="\n",
    template_hints=("<arg_key>", "</arg_key>\\n<arg_value>"),
)
HERMES = WireFormat(
    name="hermes",
    arguments=JsonCall(),
    call_open="<tool_call>\n",
    call_close="\n</tool_call>",
    separator="\n",
    reasoning=THINK,
    template_hints=("<tool_call>", '"arguments"'),
)
QWEN_CODER = WireFormat(
    name="qwen3_coder",
    arguments=TaggedArguments("<parameter=", ">\n", "\n</parameter>\n"),
    call_open="<tool_call>\n<function=",
    name_close=">\n",
    call_close="</function>\n</tool_call>",
    separator="\n",
    reasoning=THINK,
    template_hints=("<function=", "<parameter="),
)
DEEPSEEK_V3 = WireFormat(
    name="deepseek_v3",
    arguments=JsonArguments(),
    section_open="<｜tool▁calls▁begin｜>",
    call_open="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    name_close="\n```json\n",
    call_close="\n```<｜tool▁call▁end｜>",
    separator="\n",
    section_close="<｜tool▁calls▁end｜>",
    reasoning=THINK,
    template_hints=("<｜tool▁calls▁begin｜>", "```json"),
)
DEEPSEEK_V31 = WireFormat(
    name="deepseek_v31",
    arguments=JsonArguments(),
    section_open="<｜tool▁calls▁begin｜>",
    call_open="<｜tool▁call▁begin｜>",
    name_close="<｜tool▁sep｜>",
    call_close="<｜tool▁call▁end｜>",
    section_close="<｜tool▁calls▁end｜>",
    reasoning=THINK,
    template_hints=("<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>"),
)
DEEPSEEK_V32 = WireFormat(
    name="deepseek_v32",
    arguments=TaggedArguments(
        '<｜DSML｜parameter name="',
        '" string="true">',
        "</｜DSML｜parameter>\n",
        type_tags=('" string="true">', '" string="false">'),
    ),
    section_open="<｜DSML｜function_calls>\n",
    call_open='<｜DSML｜invoke name="',
    name_close='">\n',
    call_close="</｜DSML｜invoke>\n",
    section_close="</｜DSML｜function_calls>",
    reasoning=THINK,
    template_hints=("｜DSML｜",),
)
KIMI_K2 = WireFormat(
    name="kimi_k2",
    arguments=JsonArguments(),
    section_open="<|tool_calls_section_begin|>",
    call_open="<|tool_call_begin|>functions.",
    number_open=":",
    name_close="<|tool_call_argument_begin|>",
    call_close="<|tool_call_end|>",
    section_close="<|tool_calls_section_end|>",
    reasoning=THINK,
    template_hints=("<|tool_calls_section_begin|>",),
)
LLAMA_3 = WireFormat(
    name="llama3_json",
    arguments=JsonCall(arguments_key="parameters"),
    separator="; ",
    starts_the_answer=True,
    template_hints=("<|python_tag|>", '"parameters"'),
)
JSON_LIST = WireFormat(
    name="json",
    arguments=JsonCall(),
    section_open="[",
    separator=", ",
    section_close="]",
    starts_the_answer=True,
)

FORMATS: dict[str, WireFormat] = {
    row.name: row
    for row in (
        GLM_47,
        GLM_45,
        HERMES,
        QWEN_CODER,
        DEEPSEEK_V3,
        DEEPSEEK_V31,
        DEEPSEEK_V32,
        KIMI_K2,
        LLAMA_3,
        JSON_LIST,
    )
}
