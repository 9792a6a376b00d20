"""What can go wrong: with the request (raised), with the output (returned as a Fault)."""

from dataclasses import dataclass
from typing import Literal


class ToolCallError(Exception):
    """Base of this library's exceptions."""


class InvalidToolRequest(ToolCallError):
    """The request cannot be served as it is; `param` is the path of the fault in the body.

    Paths are written as OpenAI writes them: `tools[0].function.parameters.properties.city.type`.
    """

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class GrammarTooLarge(ToolCallError):
    """The grammar has more states than the caller allowed."""


FaultKind = Literal[
    "undeclared_tool",
    "invalid_arguments",
    "malformed_call",
    "wrong_tool",
    "too_many_calls",
    "missing_call",
    "invalid_content",
]


@dataclass(frozen=True)
class Fault:
    """An output that must not reach the client as a success.

    `call` counts the answer's calls from 0; None when the fault is not about one call.
    """

    kind: FaultKind
    message: str
    call: int | None = None
