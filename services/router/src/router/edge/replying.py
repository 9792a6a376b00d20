"""One answer on its way out, whole or as server-sent events, with its end counted and logged.

Invariant: a stream ends in exactly one of: a finish reason and `[DONE]`, or one error event.
"""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager

import orjson
from opentelemetry import trace

import observe
from router.answer import Answer
from router.edge import error_replies, wire_responses
from router.edge.wire_responses import Envelope
from router.errors import AnswerFailed, InvalidModelOutput, RequestCancelled, RouterError
from router.generate import Run
from router.metrics import COMPLETION_TOKENS, PROMPT_TOKENS, REQUESTS, RUNNING, TTFT_S
from router.service import RouterService
from toolcall.events import Event

log = observe.get_logger(__name__)


class Reply:
    """One answer in either form."""

    def __init__(
        self,
        service: RouterService,
        run: Run,
        answer: Answer,
        envelope: Envelope,
        span: trace.Span,
        started: float,
    ) -> None:
        self._service = service
        self._run = run
        self._answer = answer
        self._envelope = envelope
        self._span = span
        self._started = started
        self._outcome = "failed"

    async def body(self) -> tuple[int, bytes]:
        """The whole answer as a status and JSON. Raises RouterError."""
        with self._closing():
            try:
                with self._failing_as_router_error():
                    events = [event async for event in self._events()]
                    answer = self._envelope.body(events, self._run.usage)
            except (RequestCancelled, InvalidModelOutput) as error:
                # Who cancels, or pays for tokens, still wants to know what was computed.
                if isinstance(error, RequestCancelled):
                    self._outcome = "cancelled"
                status, body, _ = error_replies.reply_of(error)
                return status, orjson.dumps({**body, "usage": self._run.usage.as_openai()})
            self._outcome = "completed"
            return 200, answer

    async def events(self, include_usage: bool) -> AsyncIterator[bytes]:
        """The answer as server-sent events."""
        with self._closing():
            try:
                with self._failing_as_router_error():
                    yield self._envelope.first_event()
                    async for event in self._events():
                        if data := self._envelope.event(event):
                            yield data
                self._outcome = "completed"
            except RequestCancelled as error:
                # Who cancels still wants to know what was computed.
                self._outcome = "cancelled"
                yield self._envelope.usage_event(self._run.usage)
                yield wire_responses.error_event(error_replies.reply_of(error)[1])
                return
            except RouterError as error:
                if self._run.usage.completion_tokens:
                    yield self._envelope.usage_event(self._run.usage)
                yield wire_responses.error_event(error_replies.reply_of(error)[1])
                return
            if include_usage:
                yield self._envelope.usage_event(self._run.usage)
            yield wire_responses.DONE

    @contextmanager
    def _failing_as_router_error(self) -> Iterator[None]:
        """Also what nobody expected ends the answer in an error that the client can read."""
        try:
            yield
        except RouterError:
            raise
        except Exception as error:
            request_id = self._run.generation.request_id
            log.exception("answer_failed", request_id=request_id)
            raise AnswerFailed(request_id) from error

    async def _events(self) -> AsyncIterator[Event]:
        self._run.on_first_token = self._note_first_token
        async with aclosing(self._answer.events()) as events:
            async for event in events:
                yield event

    def _note_first_token(self) -> None:
        TTFT_S.observe(time.monotonic() - self._started)
        self._span.add_event("first_token")

    def _closing(self) -> "_Closing":
        return _Closing(self)

    def close(self) -> None:
        """Counts, logs and ends the span; runs once, however the answer ended."""
        run, path, usage = self._run, self._run.path, self._run.usage
        self._service.finish(run)
        REQUESTS.labels(self._envelope.endpoint, self._outcome).inc()
        PROMPT_TOKENS.labels("cached").inc(usage.cached_tokens)
        PROMPT_TOKENS.labels("computed").inc(usage.prompt_tokens - usage.cached_tokens)
        COMPLETION_TOKENS.inc(usage.completion_tokens)
        fields: dict[str, int | str | bool] = {
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "completion_tokens": usage.completion_tokens,
            "prefill_worker": str(path.prefill_worker),
            "decode_worker": str(path.decode_worker),
            "is_prefill_local": path.is_prefill_local,
            "migrations": path.migrations,
        }
        self._span.set_attributes({f"millrace.{name}": value for name, value in fields.items()})
        self._span.end()
        log.info(
            "request_served",
            request_id=run.generation.request_id,
            outcome=self._outcome,
            duration_s=round(time.monotonic() - self._started, 4),
            **fields,
        )


class _Closing:
    """Closes a reply when its last byte was made or its reader went away."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def __enter__(self) -> None:
        RUNNING.inc()

    def __exit__(self, *_: object) -> None:
        RUNNING.dec()
        self._reply.close()
