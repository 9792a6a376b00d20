"""What an answer may be: the client's tools, tool choice and structure, checked and normalised."""

from dataclasses import dataclass
from typing import Any, Literal

from toolcall.schema.nodes import Schema

AnswerStart = Literal["fresh", "in_reasoning", "after_reasoning"]
"""Where an answer begins: the prompt left the reasoning unopened, open, or closed."""


@dataclass(frozen=True)
class Tool:
    """A declared function; `definition` is the client's own object, which chat templates render."""

    name: str
    schema: Schema
    definition: dict[str, Any]
    param: str
    """Where in the request its function stands, such as `tools[0].function`."""
    is_strict: bool = True
    """False only where the client said `strict: false`: then only the guard checks arguments."""


@dataclass(frozen=True)
class ToolChoice:
    """OpenAI's tool_choice; `name` is set for "named" only."""

    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str | None = None


BLANK_LINES = "\n\n"
"""Templates write up to two line ends between reasoning and what follows it."""


@dataclass(frozen=True)
class Structure:
    """What the content must look like, when the client asked for more than text.

    json: `schema` holds (json_object is the schema {"type": "object"}); regex: `pattern` matches
    the whole content; choice: the content is one of `choices`.
    """

    kind: Literal["json", "regex", "choice"]
    schema: Schema | None = None
    pattern: str | None = None
    choices: tuple[str, ...] = ()

    @property
    def lead(self) -> str:
        """What may stand before the content, in part or whole, and is not part of it.

        Nothing where the content itself may begin with a line end: they could not be told apart.
        """
        if self.kind == "regex" or any(choice.startswith("\n") for choice in self.choices):
            return ""
        return BLANK_LINES


@dataclass(frozen=True)
class OutputPlan:
    """Everything about an answer that the grammar, the parser and the guard agree on."""

    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = ToolChoice("none")
    is_parallel: bool = True
    structure: Structure | None = None

    @property
    def may_call(self) -> bool:
        """True when the answer may hold tool calls."""
        return bool(self.tools) and self.choice.mode != "none"

    def callable_tools(self) -> tuple[Tool, ...]:
        """The tools that this answer may call."""
        if not self.may_call:
            return ()
        if self.choice.mode == "named":
            return tuple(tool for tool in self.tools if tool.name == self.choice.name)
        return self.tools
