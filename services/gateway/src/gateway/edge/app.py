"""The public HTTP API: OpenAI's paths, each also below /api."""

from datetime import UTC, datetime

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import observe
from gateway import metrics
from gateway.choose import Model
from gateway.edge import intake, replies, usage
from gateway.edge.exchange import Exchange
from gateway.edge.state import Gateway
from gateway.errors import GatewayError, ModelUnknown, QueryInvalid
from gateway.request_body import Endpoint
from wire import headers, ids

log = observe.get_logger(__name__)

_ID = "millrace.request_id"
_UNTRACED = ("/healthz", "/readyz")


def build_app(gateway: Gateway) -> ASGIApp:
    """The ASGI application of one gateway process."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    routes = _routes(gateway)
    app.include_router(routes, prefix="/v1")
    app.include_router(routes, prefix="/api/v1")
    _add_probes(app, gateway)
    _add_error_replies(app)
    return _Numbered(app)


def _routes(gateway: Gateway) -> APIRouter:
    router = APIRouter()

    @router.post("/chat/completions")
    async def chat_completions(request: Request) -> Response:
        return await _complete(request, Endpoint.CHAT_COMPLETIONS)

    @router.post("/completions")
    async def completions(request: Request) -> Response:
        return await _complete(request, Endpoint.COMPLETIONS)

    async def _complete(request: Request, endpoint: Endpoint) -> Response:
        admitted = await intake.admit(gateway, request, endpoint, request.scope[_ID])
        return Exchange(gateway, admitted)

    @router.get("/models")
    async def list_models(request: Request) -> Response:
        gateway.check_ready()
        caller = intake.check_caller(gateway, request)
        found = [_model_object(model) for model in gateway.routes.models(caller.team_id)]
        return replies.json_response({"object": "list", "data": found})

    @router.get("/models/{name:path}")
    async def get_model(request: Request, name: str) -> Response:
        gateway.check_ready()
        caller = intake.check_caller(gateway, request)
        for model in gateway.routes.models(caller.team_id):
            if model.name == name:
                return replies.json_response(_model_object(model))
        raise ModelUnknown(
            f"The model `{name[:100]}` does not exist or you do not have access to it."
        )

    @router.get("/usage")
    async def get_usage(
        request: Request, start: str | None = None, end: str | None = None
    ) -> Response:
        caller = intake.check_caller(gateway, request)
        now = datetime.now(UTC)
        return replies.json_response(
            await usage.summarize(gateway, caller.team_id, start, end, now)
        )

    return router


def _add_probes(app: FastAPI, gateway: Gateway) -> None:
    @app.get("/healthz")
    async def healthz() -> Response:
        """This process runs."""
        return replies.json_response({"status": "ok"})

    @app.get("/readyz")
    async def readyz() -> Response:
        """Completions can be served."""
        missing = {
            "directory": gateway.directory.has_arrived,
            "routes": gateway.routes.has_arrived,
            "is_stopping": gateway.is_stopping,
        }
        return replies.json_response(missing, 200 if gateway.is_ready else 503)


def _add_error_replies(app: FastAPI) -> None:
    @app.exception_handler(GatewayError)
    async def refused(request: Request, error: GatewayError) -> Response:
        code = replies.error_code(error)
        metrics.REFUSALS.labels(code).inc()
        log.info("request_refused", request_id=request.scope[_ID], code=code, param=error.param)
        return replies.error_response(error)

    @app.exception_handler(RequestValidationError)
    async def invalid_query(_: Request, error: RequestValidationError) -> Response:
        name = str(error.errors()[0]["loc"][-1])
        return replies.error_response(QueryInvalid(f"Expected another value for `{name}`.", name))

    @app.exception_handler(HTTPException)
    async def not_served(request: Request, error: HTTPException) -> Response:
        return replies.http_error_response(error.status_code, request.url.path, request.method)

    @app.exception_handler(ClientDisconnect)
    async def client_gone(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=400)  # nobody is there to read it

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        log.error("request_crashed", request_id=request.scope[_ID], error=type(error).__name__)
        return replies.unexpected_response()


def _model_object(model: Model) -> dict[str, object]:
    # `created` belongs to OpenAI's shape; nobody here knows when a model was made.
    return {
        "id": model.name,
        "object": "model",
        "created": 0,
        "owned_by": "millrace",
        "context_length": model.context_tokens,
    }


class _Numbered:
    """Gives every request its id and its span, and every response the header `x-request-id`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = ids.new_request_id()
        scope[_ID] = request_id
        header = (headers.REQUEST_ID.encode(), request_id.encode())

        async def send_numbered(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), header]
            await send(message)

        if scope["path"] in _UNTRACED:
            await self._app(scope, receive, send_numbered)
            return
        parent = observe.extract(
            {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        )
        with observe.tracer().start_as_current_span(
            "gateway.request", context=parent, record_exception=False
        ) as span:
            span.set_attribute("millrace.request_id", request_id)
            await self._app(scope, receive, send_numbered)
