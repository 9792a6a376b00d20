"""Every error of the admin API in the shape of OpenAI: {"error": {message, type, param, code}}."""

from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException

import observe
from billing.edge.translate import INTERNAL, reply_to
from billing.errors import BillingError
from billing.store.database import brief

log = observe.get_logger(__name__)


def error_response(
    status: int,
    message: str,
    *,
    type: str = "invalid_request_error",
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """One error body."""
    error = {"message": message, "type": type, "param": param, "code": code}
    return JSONResponse({"error": error}, status, dict(headers or {}))


def install_error_bodies(app: FastAPI) -> None:
    """Gives the application its error policy."""
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    for kind in (BillingError, DBAPIError, OSError, TimeoutError):
        app.add_exception_handler(kind, _foreseen)
    app.add_exception_handler(Exception, _unforeseen)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    # Skips "body", "query" or "path"; what is left names the field as the caller wrote it.
    param = ".".join(str(part) for part in first["loc"][1:]) or None
    if first["type"] == "json_invalid":
        return error_response(400, "The body is not valid JSON.", code="invalid_json")
    message = f"{param}: {first['msg']}" if param else f"The body is not usable: {first['msg']}"
    return error_response(400, message, param=param, code="invalid_value")


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path}"
    code: str | None = None
    match error.status_code:
        case 404:
            message, code = f"There is no {where} in the admin API.", "not_found"
        case 405:
            message, code = f"{where} is not possible; the path takes other methods.", "not_allowed"
        case _:
            message = str(error.detail)
    return error_response(error.status_code, message, code=code, headers=error.headers)


async def _foreseen(request: Request, error: Exception) -> JSONResponse:
    reply = reply_to(error)
    if reply is None:
        raise error
    if not isinstance(error, BillingError):
        log.warning("request_failed", path=request.url.path, code=reply.code, error=brief(error))
    return error_response(
        reply.http_status,
        reply.message,
        type=reply.type,
        code=reply.code,
        headers={"retry-after": "1"} if reply.is_retryable else None,
    )


async def _unforeseen(_: Request, __: Exception) -> JSONResponse:
    # The server logs it once with its trace: the framework raises it again after this answer.
    return error_response(
        INTERNAL.http_status, INTERNAL.message, type=INTERNAL.type, code=INTERNAL.code
    )
