"""What leaves the parser, and when: live, or held until the guard has seen the whole call.

Invariants: a call of a tool outside `live_tools` leaves only after the guard has passed it; events
leave in the order of the text; one push gives at most one delta of a kind in a row.
"""

from dataclasses import dataclass, field
from typing import NoReturn

from toolcall.errors import Fault, FaultKind, ToolCallError
from toolcall.events import (
    ArgumentsDelta,
    CallEnded,
    CallStarted,
    ContentDelta,
    Event,
    ReasoningDelta,
)
from toolcall.guard import Guard
from toolcall.plan import OutputPlan, Tool


class Refused(ToolCallError):
    """The answer must not leave as a success."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@dataclass
class Call:
    """A call whose name is known."""

    tool: Tool
    is_live: bool
    arguments: list[str] = field(default_factory=list)


class Delivery:
    """Collects the answer's events; `drain` gives those that may leave now."""

    def __init__(self, plan: OutputPlan, guard: Guard, live_tools: frozenset[str]) -> None:
        self.calls = 0
        """Calls that are whole and have left."""
        self.call: Call | None = None
        self.content: list[str] = []
        self._plan, self._guard, self._live_tools = plan, guard, live_tools
        self._tools = {tool.name: tool for tool in plan.tools}
        self._callable = {tool.name for tool in plan.callable_tools()}
        self._events: list[Event] = []
        self._kind: type[ReasoningDelta] | type[ContentDelta] | type[ArgumentsDelta] | None = None
        self._delta: list[str] = []

    @property
    def has_left(self) -> bool:
        """True when any content or call has left, reasoning aside."""
        return bool(self.content or self.calls)

    def is_declared(self, name: str) -> bool:
        """True when the client declared a tool of this name, callable now or not."""
        return name in self._tools

    def reasoning(self, text: str) -> None:
        """More reasoning."""
        self._add(ReasoningDelta, text)

    def add_content(self, text: str) -> None:
        """More content."""
        self.content.append(text)
        self._add(ContentDelta, text)

    def start(self, name: str, *, may_be_live: bool = True) -> Tool:
        """The call's name is known; raises Refused when it is not one that may be called."""
        tool = self._tools.get(name)
        if tool is None:
            self.refuse("undeclared_tool", f"the model called {name!r}, which is not declared")
        if name not in self._callable:
            self.refuse("wrong_tool", f"the model called {name!r}, not {self._plan.choice.name!r}")
        if self.calls and (not self._plan.is_parallel or self._plan.choice.mode == "named"):
            self.refuse("too_many_calls", "the answer may hold one call only")
        self.call = Call(tool, may_be_live and name in self._live_tools)
        if self.call.is_live:
            self._put(CallStarted(self.calls, name))
        return tool

    def arguments(self, text: str) -> None:
        """More of the call's arguments."""
        assert self.call is not None
        self.call.arguments.append(text)
        if self.call.is_live:
            self._add(ArgumentsDelta, text)

    def end_call(self) -> None:
        """The call is whole; raises Refused when the guard does not pass it."""
        call, index = self.call, self.calls
        assert call is not None
        arguments = "".join(call.arguments)
        fault = self._guard.check_call(call.tool.name, arguments, index)
        if fault is not None:
            raise Refused(fault)
        if not call.is_live:
            self._put(CallStarted(index, call.tool.name))
            self._put(ArgumentsDelta(index, arguments))
        self._put(CallEnded(index))
        self.calls, self.call = index + 1, None

    def refuse(self, kind: FaultKind, message: str) -> NoReturn:
        """Refuses the call at hand."""
        raise Refused(Fault(kind, message, self.calls))

    def drain(self) -> list[Event]:
        """The events since the last time."""
        self._flush()
        events, self._events = self._events, []
        return events

    def _add(
        self,
        kind: type[ReasoningDelta] | type[ContentDelta] | type[ArgumentsDelta],
        text: str,
    ) -> None:
        if kind is not self._kind:
            self._flush()
            self._kind = kind
        if text:
            self._delta.append(text)

    def _put(self, event: Event) -> None:
        self._flush()
        self._events.append(event)

    def _flush(self) -> None:
        if not self._delta:
            return
        text, self._delta = "".join(self._delta), []
        if self._kind is ArgumentsDelta:
            self._events.append(ArgumentsDelta(self.calls, text))
        elif self._kind is ContentDelta:
            self._events.append(ContentDelta(text))
        else:
            self._events.append(ReasoningDelta(text))
