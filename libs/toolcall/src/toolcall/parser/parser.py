"""One state machine for every answer: streaming or not, any format, text cut anywhere.

Invariant: the events of an answer say the same for every way to cut its text, and the last of them
is a Finished or a Fault. After a Fault nothing more comes.
"""

from dataclasses import replace
from typing import Literal

from toolcall.errors import Fault
from toolcall.events import Event, Finished
from toolcall.formats.table import JsonCall, WireFormat
from toolcall.guard import Guard
from toolcall.marks import Marks
from toolcall.parser.answer import AnswerReader
from toolcall.parser.delivery import Delivery, Refused
from toolcall.parser.source import Source, Unfinished
from toolcall.plan import AnswerStart, OutputPlan

NO_CALLS = WireFormat("text", JsonCall())
"""Stands in for the format of a model that has none: all of its answer is content."""


class Parser:
    """Reads one answer. `live_tools`: whose arguments leave as they come, before the guard."""

    def __init__(
        self,
        plan: OutputPlan,
        format: WireFormat | None,
        marks: Marks,
        start: AnswerStart,
        guard: Guard,
        live_tools: frozenset[str],
    ) -> None:
        self._plan, self._guard = plan, guard
        self._source = Source()
        self._delivery = Delivery(plan, guard, live_tools)
        self._answer = AnswerReader(plan, format or NO_CALLS, marks, self._source, self._delivery)
        self._reading = self._answer.read(start)
        self._is_over = False
        self._is_content_faulty = False

    @property
    def safe_length(self) -> int:
        """The number of characters before the first thing that has not been delivered whole.

        That is the call at hand, or the content when the fault is about all of it.
        """
        return self._answer.body_at if self._is_content_faulty else self._answer.settled

    @property
    def waiting(self) -> str:
        """Blanks that have not left because a call would make markup of them."""
        return self._answer.waiting

    def resume_at(self) -> int | None:
        """Where another try may take over; None when a part of what is faulty has left.

        Whoever reads the text up to there with a new parser gets what this one has delivered.
        """
        if self._is_content_faulty:
            has_left = self._delivery.has_left
        else:
            call = self._delivery.call
            has_left = call is not None and call.is_live
        return self.safe_length if self._answer.is_cut_clean and not has_left else None

    def push(self, text: str) -> list[Event]:
        """More of the answer, with marks for control tokens; what is known by now."""
        if self._is_over:
            return []
        self._source.add(text)
        return self._advance()

    def finish(self, reason: Literal["stop", "length"]) -> list[Event]:
        """The answer is over; the last event is Finished or a Fault."""
        if self._is_over:
            return []
        self._source.end(is_cut=reason == "length")
        events = self._advance()
        if not self._is_over:
            self._is_over = True
            events.append(self._conclude(reason))
        return events

    def stop(self, content: str, calls: int) -> Finished | Fault:
        """The answer is over at a stop string: this much of its content counts, and so many calls.

        What stands behind the stop string may have been read already, and is not part of it.
        """
        self._is_over = True
        self._delivery.content = [content] if content else []
        self._delivery.calls = calls
        end = self._conclude("stop")
        if isinstance(end, Fault):
            return replace(end, message=f"{end.message} (a stop string ended the answer)")
        return end

    def _advance(self) -> list[Event]:
        fault = None
        try:
            next(self._reading, None)
        except Refused as refused:
            fault = refused.fault
        except Unfinished as unfinished:
            if not self._source.is_cut:
                message = f"the answer ends inside a call: {unfinished}"
                fault = Fault("malformed_call", message, self._delivery.calls)
        events = self._delivery.drain()
        if fault is not None:
            self._is_over = True
            events.append(fault)
        return events

    def _conclude(self, reason: Literal["stop", "length"]) -> Finished | Fault:
        if reason == "length":
            return Finished("length")
        fault = self._fault_of_the_whole()
        if fault is not None:
            self._is_content_faulty = True
            return fault
        is_named = self._plan.choice.mode == "named"
        return Finished("tool_calls" if self._delivery.calls and not is_named else "stop")

    def _fault_of_the_whole(self) -> Fault | None:
        calls = self._delivery.calls
        if self._plan.choice.mode in ("required", "named") and not calls:
            return Fault("missing_call", "the answer holds no tool call")
        if self._plan.structure is None or (calls and not self._delivery.content):
            return None
        return self._guard.check_content("".join(self._delivery.content))
