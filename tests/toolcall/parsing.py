"""A case through the parser alone: pieces of text in, the answer that a client would have out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tests.toolcall.vocabulary import Vocabulary
from toolcall.errors import Fault
from toolcall.events import (
    ArgumentsDelta,
    CallEnded,
    CallStarted,
    ContentDelta,
    Event,
    Finished,
    ReasoningDelta,
)
from toolcall.formats.detect import by_name
from toolcall.guard import Guard
from toolcall.parser.parser import Parser
from toolcall.plan import OutputPlan
from toolcall.requests import plan_output
from toolcheck_suite.cases import Case, Expected
from toolcheck_suite.scripted import canonical, canonical_text

GUIDED = ("structured_outputs",)
GuardOf = Callable[[OutputPlan], Guard]


@dataclass
class Parsed:
    """An answer; `problems` are breaks of the events' own contract."""

    reasoning: str = ""
    content: str = ""
    calls: list[list[str]] = None  # type: ignore[assignment]  # set below
    ended: int = 0
    finish: str | None = None
    fault: Fault | None = None
    problems: list[str] = None  # type: ignore[assignment]  # set below

    def __post_init__(self) -> None:
        self.calls, self.problems = [], []


def plan_of(case: Case) -> OutputPlan:
    """The checked plan of a case's request."""
    request = case.request
    return plan_output(
        tools=request.get("tools"),
        tool_choice=request.get("tool_choice"),
        parallel_tool_calls=request.get("parallel_tool_calls"),
        response_format=request.get("response_format"),
        guided={name: request[name] for name in GUIDED if name in request} or None,
    )


def parse(
    case: Case,
    plan: OutputPlan,
    vocabulary: Vocabulary,
    pieces: Iterable[str],
    live_tools: frozenset[str] = frozenset(),
    guard_of: GuardOf = Guard,
) -> Parsed:
    """Pushes the pieces, then finishes."""
    parser = Parser(
        plan, by_name(case.format), vocabulary.marks, case.start, guard_of(plan), live_tools
    )
    events = [event for piece in pieces for event in parser.push(piece)]
    events += parser.finish(case.ends)
    return fold(events)


def fold(events: Sequence[Event]) -> Parsed:
    """What a client has after these events."""
    parsed = Parsed()
    for event in events:
        if parsed.finish is not None or parsed.fault is not None:
            parsed.problems.append(f"{event} after the end")
        match event:
            case ReasoningDelta(text):
                parsed.reasoning += text
            case ContentDelta(text):
                parsed.content += text
            case CallStarted(index, name):
                _expect(parsed, index == len(parsed.calls) == parsed.ended, event)
                parsed.calls.append([name, ""])
            case ArgumentsDelta(index, text):
                _expect(parsed, index == len(parsed.calls) - 1 == parsed.ended, event)
                parsed.calls[index][1] += text
            case CallEnded(index):
                _expect(parsed, index == len(parsed.calls) - 1 == parsed.ended, event)
                parsed.ended += 1
            case Finished(reason):
                parsed.finish = reason
            case Fault():
                parsed.fault = event
    if parsed.finish is None and parsed.fault is None:
        parsed.problems.append("neither Finished nor a Fault at the end")
    return parsed


def differences(expected: Expected, parsed: Parsed) -> list[str]:
    """Everything in which the answer is not the expected one."""
    found = list(parsed.problems)
    if expected.fault is not None:
        if parsed.fault is None:
            return [*found, f"expected a fault {expected.fault}, came {parsed}"]
        if parsed.fault.kind != expected.fault:
            found.append(f"expected a fault {expected.fault}, came {parsed.fault}")
        return found
    if parsed.fault is not None:
        return [*found, f"came {parsed.fault}"]
    whole = parsed.calls
    if parsed.finish == "length":
        whole = whole[: parsed.ended]  # a live call that was cut leaves its beginning
    for name, wanted, came in (
        ("reasoning", expected.reasoning, parsed.reasoning),
        ("content", expected.content, parsed.content),
        ("finish", expected.finish, parsed.finish),
        ("names", [call.name for call in expected.calls], [call[0] for call in whole]),
        (
            "arguments",
            [canonical(call.arguments) for call in expected.calls],
            [canonical_text(call[1]) for call in whole],
        ),
    ):
        if wanted != came:
            found.append(f"{name}: expected {wanted!r}, came {came!r}")
    for call, came in zip(expected.calls, whole, strict=False):
        if call.text is not None and call.text != came[1]:
            found.append(f"arguments as text: expected {call.text}, came {came[1]}")
    return found


def _expect(parsed: Parsed, is_right: bool, event: Event) -> None:
    if not is_right:
        parsed.problems.append(f"{event} does not belong there")
