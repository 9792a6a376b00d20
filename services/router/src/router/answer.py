"""One answer: the run's tokens as reasoning, content and guarded calls; one retry after a fault.

Invariant: what was given out is never taken back. A fault that shows before any part of the faulty
call left is answered by generating again from where that call began (the tokens before it stay,
and the grammar goes on behind them); any other fault, or a second one, ends the answer with an
error.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import observe
from router.constrain import Constraint
from router.domain import Tokens
from router.errors import InvalidModelOutput
from router.generate import Run
from router.metrics import CALLS, DISCARDED_TOKENS, FAULTS
from router.render import Renderer
from router.text import StopTexts, TextStream
from toolcall.errors import Fault
from toolcall.events import CallEnded, ContentDelta, Event, Finished
from toolcall.guard import Guard
from toolcall.parser.parser import Parser

log = observe.get_logger(__name__)

RETRY_TEMPERATURE = 0.7
"""A greedy answer would only repeat its fault; this is a usual temperature for tool use."""


class Answer:
    """Reads one run to its end.

    `is_whole`: nothing is given out before all of it is there, so that even a fault in content may
    be retried from the start.
    """

    def __init__(
        self, run: Run, constraint: Constraint, renderer: Renderer, *, is_whole: bool
    ) -> None:
        self._run = run
        self._constraint = constraint
        self._renderer = renderer
        self._is_whole = is_whole
        self._guard = Guard(constraint.plan)
        self._events: list[Event] = []
        self._begin()

    async def events(self) -> AsyncGenerator[Event, None]:
        """The events up to Finished. Raises InvalidModelOutput and whatever the run raises."""
        is_retry = False
        while True:
            fault: Fault | None = None
            # Closed explicitly: before another attempt begins this one must be over.
            async with aclosing(self._attempt()) as attempt:
                async for event in attempt:
                    if isinstance(event, Fault):
                        fault = event
                        break
                    if isinstance(event, CallEnded):
                        CALLS.inc()
                    if self._is_whole:
                        self._events.append(event)
                    else:
                        yield event
            if fault is None:
                for event in self._events:
                    yield event
                return
            keep = None if is_retry else self._retry_from()
            self._note(fault, keep)
            if keep is None:
                raise InvalidModelOutput(fault)
            self._begin_again(keep)
            is_retry = True

    async def _attempt(self) -> AsyncGenerator[Event, None]:
        # Closed explicitly: after a stop string or a fault the engine must not go on.
        async with aclosing(self._run.tokens()) as all_tokens:
            async for tokens in all_tokens:
                for event in self._read(tokens):
                    yield event
                    if isinstance(event, Fault | Finished):
                        return

    def _read(self, tokens: Tokens) -> list[Event]:
        text = self._text.push(tokens.token_ids)
        if tokens.finish_reason is not None:
            text += self._text.flush()
        events = self._parser.push(text)
        if tokens.finish_reason is not None:
            events += self._parser.finish(tokens.finish_reason)
        return self._until_stop_text(events)

    def _until_stop_text(self, events: list[Event]) -> list[Event]:
        """Stop strings end the visible answer; they are not looked for elsewhere."""
        if not self._run.generation.stop_texts:
            return events
        passed: list[Event] = []
        for event in events:
            if isinstance(event, ContentDelta):
                self._pass_content(self._stop.push(event.text), passed)
                if self._stop.has_stopped:
                    return [*passed, self._end_at_stop()]
                continue
            if isinstance(event, CallEnded):
                self._calls += 1
            if isinstance(event, Finished):
                self._pass_content(self._stop.flush(), passed)
            passed.append(event)
        # Only a call could make markup of the blanks that wait; they may go on for long.
        if not self._constraint.plan.may_call and self._stop.ends_in(self._parser.waiting):
            self._pass_content(self._stop.push(self._parser.waiting), passed)
            passed.append(self._end_at_stop())
        return passed

    def _pass_content(self, text: str, passed: list[Event]) -> None:
        if text:
            self._content.append(text)
            passed.append(ContentDelta(text))

    def _end_at_stop(self) -> Event:
        return self._parser.stop("".join(self._content), self._calls)

    def _retry_from(self) -> int | None:
        """How many tokens of the answer a retry keeps; None when it is too late for one."""
        if self._run.generation.deadline.has_passed():
            return None
        length = self._parser.resume_at()
        keep = None if length is None else self._text.tokens_before(length)
        return 0 if keep is None and self._is_whole else keep

    def _begin_again(self, keep: int) -> None:
        self._run.retry(keep, RETRY_TEMPERATURE)
        self._begin()
        # What these give has been delivered already.
        self._until_stop_text(self._parser.push(self._text.push(self._run.emitted)))
        if keep == 0:
            self._events.clear()

    def _begin(self) -> None:
        """Sets everything up that reads the tokens of an answer, from its first one."""
        self._stop = StopTexts(self._run.generation.stop_texts)
        self._content: list[str] = []
        """What has passed the stop strings; kept only beside some."""
        self._calls = 0
        self._text = self._new_text()
        self._parser = self._new_parser()

    def _note(self, fault: Fault, keep: int | None) -> None:
        FAULTS.labels(fault.kind, "failed" if keep is None else "retried").inc()
        if keep is not None:
            DISCARDED_TOKENS.inc(len(self._run.emitted) - keep)
        log.warning(
            "faulty_output",
            request_id=self._run.generation.request_id,
            kind=fault.kind,
            call=fault.call,
            is_retried=keep is not None,
        )

    def _new_text(self) -> TextStream:
        renderer = self._renderer
        return TextStream(renderer.tokenizer, renderer.marks, renderer.visible_marks)

    def _new_parser(self) -> Parser:
        constraint = self._constraint
        return Parser(
            constraint.plan,
            constraint.format,
            self._renderer.marks,
            constraint.start,
            self._guard,
            constraint.live_tools,
        )
