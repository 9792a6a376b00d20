"""The wire formats of tool calls, one table row each; the grammar and the parser read the same row.

A call is `call_open NAME name_close ARGUMENTS call_close`; calls are joined by `separator` and
stand between `section_open` and `section_close`. Literals are written as text; those that a
tokenizer has as control tokens are matched as tokens (`toolcall.marks`), the others as text.
Sources: the models' public chat templates, DeepSeek's published encodings of V3.2, V4 and V4.1,
and vLLM 0.32's tool parsers, by fact.
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

    @property
    def string_end(self) -> str:
        """The literal that a raw string value cannot hold and that ends it.

        Line ends beside a tag are optional, except where the closing tag has a line of its own
        (Qwen): there only the whole literal ends a value, because code may hold the bare tag.
        """
        return self.value_close if self.value_close[:1].isspace() else self.value_close.rstrip()


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
    section_variants: tuple[tuple[str, str], ...] = ()
    """Other section tags that models write; read, never asked for."""
    number_open: str | None = None
    """Kimi writes the call's number (over the whole conversation) between this and name_close."""
    reasoning: tuple[str, str] | None = None
    reasoning_padding: tuple[str, str, str] = ("", "", "")
    """Blanks that the template writes after the opening tag, before and after the closing one."""
    template_hints: tuple[str, ...] = ()
    """Texts that the chat templates of this format hold, all of them; for detection."""
    starts_the_answer: bool = False
    """True where a call can only be told from content at the very start of the answer (Llama)."""


THINK = ("<think>", "</think>")
ON_ITS_OWN_LINES = ("\n", "\n", "\n\n")
"""How Qwen and DeepSeek R1 set their reasoning: `<think>\\n...\\n</think>\\n\\n`."""

GLM_47 = WireFormat(
    name="glm47",
    arguments=TaggedArguments("<arg_key>", "</arg_key><arg_value>", "</arg_value>"),
    call_open="<tool_call>",
    call_close="</tool_call>",
    reasoning=THINK,
    reasoning_padding=("", "", "\n"),
    template_hints=("<arg_key>", "</arg_key><arg_value>"),
)
GLM_45 = replace(
    GLM_47,
    name="glm45",
    arguments=TaggedArguments("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"),
    name_close="\n",
    separator="\n",
    template_hints=("<arg_key>", "</arg_key>\n<arg_value>"),
)
HERMES = WireFormat(
    name="hermes",
    arguments=JsonCall(),
    call_open="<tool_call>\n",
    call_close="\n</tool_call>",
    separator="\n",
    reasoning=THINK,
    reasoning_padding=ON_ITS_OWN_LINES,
    template_hints=("<tool_call>", '"arguments": '),
)
QWEN_CODER = WireFormat(
    name="qwen3_coder",
    arguments=TaggedArguments("<parameter=", ">\n", "\n</parameter>\n"),
    call_open="<tool_call>\n<function=",
    name_close=">\n",
    call_close="</function>\n</tool_call>",
    separator="\n",
    reasoning=THINK,
    reasoning_padding=ON_ITS_OWN_LINES,
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
    reasoning_padding=ON_ITS_OWN_LINES,
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


def _dsml(name: str, section: str, call: str, parameter: str) -> WireFormat:
    """DeepSeek's tag language since V3.2; the versions differ in the tags' names."""
    return WireFormat(
        name=name,
        arguments=TaggedArguments(
            f'<｜DSML｜{parameter} name="',
            '" string="true">',
            f"</｜DSML｜{parameter}>\n",
            type_tags=('" string="true">', '" string="false">'),
        ),
        section_open=f"<｜DSML｜{section}>\n",
        call_open=f'<｜DSML｜{call} name="',
        name_close='">\n',
        call_close=f"</｜DSML｜{call}>\n",
        section_close=f"</｜DSML｜{section}>",
        reasoning=THINK,
        template_hints=("｜DSML｜", f"{section}>"),
    )


DEEPSEEK_V32 = _dsml("deepseek_v32", "function_calls", "invoke", "parameter")
DEEPSEEK_V4 = _dsml("deepseek_v4", "tool_calls", "invoke", "parameter")
DEEPSEEK_V41 = _dsml("deepseek_v41", " calls", " invoke", " parameter")
KIMI_K2 = WireFormat(
    name="kimi_k2",
    arguments=JsonArguments(),
    section_open="<|tool_calls_section_begin|>",
    call_open="<|tool_call_begin|>functions.",
    number_open=":",
    name_close="<|tool_call_argument_begin|>",
    call_close="<|tool_call_end|>",
    section_close="<|tool_calls_section_end|>",
    section_variants=(("<|tool_call_section_begin|>", "<|tool_call_section_end|>"),),
    reasoning=THINK,
    template_hints=("<|tool_calls_section_begin|>",),
)
LLAMA_3 = WireFormat(
    name="llama3_json",
    arguments=JsonCall(arguments_key="parameters"),
    separator="; ",
    section_variants=(("<|python_tag|>", ""),),
    starts_the_answer=True,
    template_hints=("<|start_header_id|>", '"parameters": '),
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
        DEEPSEEK_V4,
        DEEPSEEK_V41,
        KIMI_K2,
        LLAMA_3,
        JSON_LIST,
    )
}
