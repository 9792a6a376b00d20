"""The router's HTTP edge: OpenAI requests in, JSON or server-sent events out.

Invariant: a stream ends in exactly one of: a finish reason and `[DONE]`, or one error event.
"""

import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from opentelemetry import trace
from pydantic import ValidationError

import observe
from router.domain import Generation, TextDelta
from router.edge import error_replies, wire_responses
from router.edge.wire_requests import ChatRequest, CommonRequest, CompletionRequest
from router.edge.wire_responses import Endpoint, Envelope
from router.errors import InvalidRequest, ModelNotServed, RequestCancelled, RouterError
from router.generate import Run
from router.metrics import COMPLETION_TOKENS, PROMPT_TOKENS, REQUESTS, RUNNING, TTFT_S
from router.service import RouterService
from router.text import TextStream
from wire import headers
from wire.deadlines import Deadline
from wire.ids import new_request_id

log = observe.get_logger(__name__)

SSE_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


def build_app(service: RouterService) -> FastAPI:
    """The application; `service` holds the model, the workers and the running requests."""
    app = FastAPI(title="Millrace router", docs_url=None, redoc_url=None, openapi_url=None)

    @app.exception_handler(RouterError)
    async def reply(_: Request, error: RouterError) -> JSONResponse:
        status, body, extra = error_replies.reply_of(error)
        return JSONResponse(body, status, headers=extra)

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        return await _serve(service, request, "chat.completions")

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        return await _serve(service, request, "completions")

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": service.settings.model_name, "object": "model"}]}

    @app.post("/internal/requests/{request_id}/cancel")
    async def cancel(request_id: str) -> dict[str, bool]:
        return {"was_running": service.cancel(request_id)}

    @app.get("/healthz")
    async def healthz() -> dict[str, Any]:
        return {"status": "ok", **service.worker_counts()}

    return app


async def _serve(service: RouterService, request: Request, endpoint: Endpoint) -> Response:
    started = time.monotonic()
    request_id = request.headers.get(headers.MILLRACE_REQUEST_ID) or new_request_id()
    parent = observe.extract(dict(request.headers))
    with observe.tracer().start_as_current_span(
        "router.request", context=parent, end_on_exit=False
    ) as span:
        span.set_attribute("millrace.request_id", request_id)
        try:
            body = _parse(await request.body(), endpoint)
            generation = _generation(service, body, request, request_id)
            run = service.start(generation)
        except BaseException:
            REQUESTS.labels(endpoint, "refused").inc()
            span.end()
            raise
    answer = _Answer(service, run, Envelope(endpoint, request_id, body.model), span, started)
    if body.stream:
        include_usage = body.stream_options is not None and body.stream_options.include_usage
        return StreamingResponse(
            answer.events(include_usage),
            media_type="text/event-stream",
            headers={**SSE_HEADERS, headers.PROMPT_TOKENS: str(len(generation.prompt))},
        )
    status, content = await answer.body()
    return Response(content, status, media_type="application/json")


def _parse(raw: bytes, endpoint: Endpoint) -> ChatRequest | CompletionRequest:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not JSON: {error}.") from error
    if not isinstance(body, dict):
        raise InvalidRequest(f"The body must be a JSON object, got {type(body).__name__}.")
    kind = ChatRequest if endpoint == "chat.completions" else CompletionRequest
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        raise error_replies.from_validation(error) from error


def _generation(
    service: RouterService,
    body: ChatRequest | CompletionRequest,
    request: Request,
    request_id: str,
) -> Generation:
    """Checks, renders and tokenises a request. Raises InvalidRequest or ModelNotServed."""
    settings, renderer = service.settings, service.renderer
    if body.model != settings.model_name:
        raise ModelNotServed(f"This cluster serves {settings.model_name}, not {body.model}.")
    body.refuse_unsupported()
    prompt = _prompt(service, body)
    room = settings.context_tokens - len(prompt)
    wanted = body.answer_tokens()
    priority = request.headers.get(headers.PRIORITY, "0")
    return Generation(
        request_id=request_id,
        prompt=prompt,
        # More than fits is cut, and `finish_reason: length` says so.
        max_tokens=room if wanted is None else min(wanted, room),
        min_tokens=min(body.min_tokens, room),
        sampling=body.sampling(),
        stop_token_ids=renderer.eos_token_ids,
        stop_texts=body.stop_texts(),
        ignore_eos=body.ignore_eos,
        deadline=Deadline.from_header(
            request.headers.get(headers.DEADLINE_MS), settings.default_deadline_s
        ),
        session_id=request.headers.get(headers.SESSION_ID),
        priority=int(priority) if priority.lstrip("-").isdigit() else 0,
    )


def _prompt(service: RouterService, body: CommonRequest) -> tuple[int, ...]:
    renderer = service.renderer
    if isinstance(body, ChatRequest):
        messages = [message.for_template() for message in body.messages]
        text = renderer.render_chat(messages, template_arguments=body.chat_template_kwargs)
        return renderer.tokenize(text, "messages")
    assert isinstance(body, CompletionRequest)
    if isinstance(body.prompt, str):
        return renderer.tokenize(body.prompt, "prompt")
    if body.prompt and isinstance(body.prompt[0], str):
        return renderer.tokenize(body.prompt[0], "prompt")
    return renderer.check_length(
        tuple(token for token in body.prompt if isinstance(token, int)), "prompt"
    )


class _Answer:
    """One answer on its way out, in either form."""

    def __init__(
        self,
        service: RouterService,
        run: Run,
        envelope: Envelope,
        span: trace.Span,
        started: float,
    ) -> None:
        self._service = service
        self._run = run
        self._envelope = envelope
        self._span = span
        self._started = started
        self._outcome = "failed"
        self._text = TextStream(service.renderer.tokenizer, run.generation.stop_texts)

    async def body(self) -> tuple[int, bytes]:
        """The whole answer as a status and JSON. Raises RouterError."""
        text, finish = "", "stop"
        with self._closing():
            try:
                async for delta in self._deltas():
                    text += delta.text
                    finish = delta.finish_reason or finish
            except RequestCancelled as error:
                # Who cancels still wants to know what was computed.
                self._outcome = "cancelled"
                status, body, _ = error_replies.reply_of(error)
                return status, orjson.dumps({**body, "usage": self._run.usage.as_openai()})
            self._outcome = "completed"
            return 200, self._envelope.body(text, finish, self._run.usage)

    async def events(self, include_usage: bool) -> AsyncIterator[bytes]:
        """The answer as server-sent events."""
        with self._closing():
            try:
                yield self._envelope.first_event()
                async for delta in self._deltas():
                    if event := self._envelope.delta_event(delta):
                        yield event
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

    async def _deltas(self) -> AsyncIterator[TextDelta]:
        is_first = True
        # Closed explicitly: after a stop string the engine must not go on generating.
        async with aclosing(self._run.tokens()) as all_tokens:
            async for tokens in all_tokens:
                if is_first:
                    is_first = False
                    TTFT_S.observe(time.monotonic() - self._started)
                    self._span.add_event("first_token")
                delta = self._text.push(tokens)
                if delta.text or delta.finish_reason is not None:
                    yield delta
                if delta.finish_reason is not None:
                    return

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
    """Closes an answer when its last byte was made or its reader went away."""

    def __init__(self, answer: _Answer) -> None:
        self._answer = answer

    def __enter__(self) -> None:
        RUNNING.inc()

    def __exit__(self, *_: object) -> None:
        RUNNING.dec()
        self._answer.close()
