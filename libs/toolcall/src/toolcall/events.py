"""What the parser gives out, in the order in which it may reach the client.

A call's arguments come as ArgumentsDeltas between its CallStarted and its CallEnded; together they
are one JSON object. A Fault or a Finished is the last event.
"""

from dataclasses import dataclass
from typing import Literal

from toolcall.errors import Fault

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True)
class ReasoningDelta:
    """More of the model's reasoning."""

    text: str


@dataclass(frozen=True)
class ContentDelta:
    """More of the visible answer."""

    text: str


@dataclass(frozen=True)
class CallStarted:
    """A call of a declared tool; `index` counts from 0."""

    index: int
    name: str


@dataclass(frozen=True)
class ArgumentsDelta:
    """More of the arguments' JSON text."""

    index: int
    text: str


@dataclass(frozen=True)
class CallEnded:
    """The call is whole and has passed the guard."""

    index: int


@dataclass(frozen=True)
class Finished:
    """The answer is over."""

    reason: FinishReason


Event = ReasoningDelta | ContentDelta | CallStarted | ArgumentsDelta | CallEnded | Finished | Fault
