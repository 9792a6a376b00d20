"""Answers for the parser's tests: how they are written, and a check of one in every split.

    t</think><tool_call>f<arg_key>x</arg_key><arg_value>⟨/tool_call⟩</arg_value></tool_call>

A tag that the tokenizer has as a control token is written as it is; the same characters as plain
text stand between ⟨ and ⟩.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.libs.toolcall.splits import Answer, fold, splits
from toolcall.formats.table import GLM_47, WireFormat
from toolcall.guard import Guard
from toolcall.marks import Marks
from toolcall.parser.parser import Parser
from toolcall.plan import OutputPlan
from toolcall.requests import plan_output

CONTROLS = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<|user|>",
    "<|python_tag|>",
    "｜DSML｜",
    *(
        f"<｜tool▁{name}｜>"
        for name in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep")
    ),
    *(f"<|tool_calls_section_{end}|>" for end in ("begin", "end")),
    *(f"<|tool_call_{name}|>" for name in ("begin", "argument_begin", "end")),
)
MARKS = Marks(dict(enumerate(CONTROLS)))
NO_MARKS = Marks({})
"""A tokenizer that has no control tokens: every tag is text."""
NOTHING = {"reasoning": "", "content": "", "calls": [], "finish": "stop", "fault": None}


@dataclass(frozen=True)
class Case:
    """A request and where its answer begins."""

    plan: OutputPlan
    format: WireFormat | None = GLM_47
    marks: Marks = MARKS
    start: Any = "in_reasoning"
    live_tools: frozenset[str] = frozenset()

    def parser(self) -> Parser:
        """A new parser, with the real guard."""
        return Parser(
            self.plan, self.format, self.marks, self.start, Guard(self.plan), self.live_tools
        )

    def wire(self, written: str) -> str:
        """The answer's text as the parser reads it."""
        return self.marks.encode(written).replace("⟨", "<").replace("⟩", ">")

    def read(self, pieces: Sequence[str], ends: Any = "stop") -> Answer:
        """The answer that these pieces come to."""
        parser = self.parser()
        events = [event for piece in pieces for event in parser.push(piece)]
        return fold([*events, *parser.finish(ends)])


def plan(schemas: dict[str, Any] | None = None, **request: Any) -> OutputPlan:
    """The plan for tools by name and schema, and what else the request says."""
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema}}
        for name, schema in (schemas or {}).items()
    ]
    return plan_output(
        tools=tools or None,
        tool_choice=request.get("tool_choice"),
        parallel_tool_calls=request.get("parallel_tool_calls"),
        response_format=request.get("response_format"),
        guided=request.get("guided"),
    )


def schema_of(properties: Any = None, **more: Any) -> dict[str, Any]:
    """A schema of arguments."""
    return {"type": "object", "properties": properties or {}, **more}


def call(name: str, **arguments: str) -> str:
    """A call in GLM-4.7's form."""
    pairs = "".join(
        f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>"
        for key, value in arguments.items()
    )
    return f"<tool_call>{name}{pairs}</tool_call>"


def lines(name: str, **arguments: str) -> str:
    """A call in GLM-4.5's form."""
    pairs = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"
        for key, value in arguments.items()
    )
    return f"<tool_call>{name}\n{pairs}</tool_call>"


def check(case: Case, written: str, expected: dict[str, Any], ends: str = "stop") -> None:
    """Reads the answer in every split, with calls held and live.

    `expected` holds what it has to be; what it leaves out is empty, or anything beside a fault.
    """
    text = case.wire(written)
    names = frozenset(tool.name for tool in case.plan.tools)
    for live_tools in (frozenset[str](), names):
        for pieces in splits(text, pairs_up_to=30):
            answer = replace(case, live_tools=live_tools).read(pieces, ends)
            came = {
                "reasoning": answer.reasoning,
                "content": answer.content,
                "calls": answer.calls,
                "finish": answer.finish,
                "fault": answer.fault.kind if answer.fault else None,
            }
            wanted = came if "fault" in expected else NOTHING | _finish(expected)
            assert came == {**wanted, **expected}, f"in the pieces {pieces}"


def _finish(expected: dict[str, Any]) -> dict[str, str]:
    return {"finish": "tool_calls" if expected.get("calls") else "stop"}


def one(name: str, arguments: str) -> dict[str, Any]:
    """An answer of one call, after the reasoning `t`."""
    return {"reasoning": "t", "calls": [(name, arguments)]}
