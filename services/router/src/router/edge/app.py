"""The router's HTTP edge: OpenAI requests in, JSON or server-sent events out."""

import asyncio
import time
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import ValidationError

import observe
from router.answer import Answer
from router.constrain import Constraint
from router.domain import Generation
from router.edge import error_replies
from router.edge.replying import Reply
from router.edge.wire_requests import ChatRequest, CompletionRequest
from router.edge.wire_responses import CallIds, Endpoint, Envelope
from router.errors import AnswerFailed, InvalidRequest, ModelNotServed, RouterError
from router.generate import Run
from router.metrics import REQUESTS
from router.service import RouterService
from toolcall.errors import InvalidToolRequest
from toolcall.grammar.build import needs_grammar
from toolcall.plan import OutputPlan
from toolcall.requests import check_history
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
            generation, constraint = await _generation(service, body, request, request_id)
            run = service.start(generation)
        except BaseException as error:
            is_expected = isinstance(error, RouterError) or not isinstance(error, Exception)
            REQUESTS.labels(endpoint, "refused" if is_expected else "failed").inc()
            span.end()
            if is_expected:
                raise
            log.exception("request_failed", request_id=request_id)
            raise AnswerFailed(request_id) from error
    answer = Answer(run, constraint, service.renderer, is_whole=not body.stream)
    envelope = Envelope(endpoint, request_id, body.model, _call_ids(body, constraint, request_id))
    reply = Reply(service, run, answer, envelope, span, started)
    if body.stream:
        include_usage = body.stream_options is not None and body.stream_options.include_usage
        return StreamingResponse(
            reply.events(include_usage),
            media_type="text/event-stream",
            headers={**SSE_HEADERS, headers.PROMPT_TOKENS: str(len(generation.prompt))},
        )
    leaving = asyncio.create_task(_cancel_when_client_leaves(request, run))
    try:
        status, content = await reply.body()
    finally:
        leaving.cancel()
    return Response(content, status, media_type="application/json")


async def _cancel_when_client_leaves(request: Request, run: Run) -> None:
    """For whole answers: Starlette watches the client of a stream only."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    run.cancel()


def _parse(raw: bytes, endpoint: Endpoint) -> ChatRequest | CompletionRequest:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not JSON: {error}.") from error
    if not isinstance(body, dict):
        raise InvalidRequest(f"The body must be a JSON object, got {type(body).__name__}.")
    kind = ChatRequest if endpoint == "chat.completions" else CompletionRequest
    try:
        parsed = kind.model_validate(body)
        if isinstance(parsed, ChatRequest):
            check_history(body["messages"])
        return parsed
    except ValidationError as error:
        raise error_replies.from_validation(error) from error
    except InvalidToolRequest as error:
        raise InvalidRequest(str(error), param=error.param) from error


async def _generation(
    service: RouterService,
    body: ChatRequest | CompletionRequest,
    request: Request,
    request_id: str,
) -> tuple[Generation, Constraint]:
    """Checks, renders, constrains and tokenises. Raises InvalidRequest or ModelNotServed."""
    settings, renderer = service.settings, service.renderer
    if body.model != settings.model_name:
        raise ModelNotServed(f"This cluster serves {settings.model_name}, not {body.model}.")
    body.refuse_unsupported()
    wishes = body.wishes()
    plan = await service.constrainer.plan(wishes)
    _refuse_beside_grammar(body, plan)
    text = _prompt_text(service, body)
    prompt = _prompt(service, body, text)
    constraint = await service.constrainer.constrain(wishes, plan, text)
    room = settings.context_tokens - len(prompt)
    wanted = body.answer_tokens()
    priority = request.headers.get(headers.PRIORITY, "0")
    generation = Generation(
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
        grammar=constraint.grammar,
    )
    return generation, constraint


def _refuse_beside_grammar(body: ChatRequest | CompletionRequest, plan: OutputPlan) -> None:
    """What would force tokens behind the end of a grammar cannot be served with one."""
    if not needs_grammar(plan):
        return
    for name, value in (("ignore_eos", body.ignore_eos), ("min_tokens", body.min_tokens)):
        if value:
            raise InvalidRequest(
                f"{name} cannot be combined with tools or a structured answer. Leave it out.",
                param=name,
                code="unsupported_parameter",
            )


def _prompt_text(service: RouterService, body: ChatRequest | CompletionRequest) -> str:
    """The prompt as text; empty where the client sent token ids."""
    if isinstance(body, ChatRequest):
        messages = [message.for_template() for message in body.messages]
        return service.renderer.render_chat(messages, body.tools, body.chat_template_kwargs)
    if isinstance(body.prompt, str):
        return body.prompt
    first = body.prompt[0] if body.prompt else ""
    return first if isinstance(first, str) else ""


def _prompt(
    service: RouterService, body: ChatRequest | CompletionRequest, text: str
) -> tuple[int, ...]:
    if isinstance(body, ChatRequest):
        return service.renderer.tokenize(text, "messages")
    if text or not body.prompt or isinstance(body.prompt, str):
        return service.renderer.tokenize(text, "prompt")
    return service.renderer.check_length(
        tuple(token for token in body.prompt if isinstance(token, int)), "prompt"
    )


def _call_ids(
    body: ChatRequest | CompletionRequest, constraint: Constraint, request_id: str
) -> CallIds:
    is_numbered = constraint.format is not None and constraint.format.number_open is not None
    so_far = body.calls_so_far() if is_numbered and isinstance(body, ChatRequest) else 0
    return CallIds(request_id, is_numbered, so_far)
