"""The one table from what went wrong to what the caller sees, in OpenAI's error shape."""

from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from router.errors import (
    AnswerFailed,
    DeadlineExceeded,
    GenerationFailed,
    InvalidModelOutput,
    InvalidRequest,
    ModelNotServed,
    NoWorkers,
    RequestCancelled,
    RouterError,
)

# Each exception with its status, error type, error code, and whether a retry may help.
REPLIES: dict[type[RouterError], tuple[int, str, str | None, bool]] = {
    InvalidRequest: (400, "invalid_request_error", None, False),
    ModelNotServed: (404, "invalid_request_error", "model_not_found", False),
    # Not 502 or 503: a gateway would send the request on and have it computed again elsewhere.
    InvalidModelOutput: (500, "server_error", None, False),
    GenerationFailed: (500, "server_error", "generation_failed", False),
    AnswerFailed: (500, "server_error", "internal_error", False),
    NoWorkers: (503, "server_error", "no_capacity", True),
    DeadlineExceeded: (504, "server_error", "deadline_exceeded", True),
    RequestCancelled: (499, "invalid_request_error", "request_cancelled", False),
}
RETRY_AFTER_S = 2


def reply_of(error: RouterError) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Status, body and headers of the reply to this error."""
    kind = next(kind for kind in type(error).__mro__ if kind in REPLIES)
    status, error_type, code, is_retryable = REPLIES[kind]
    param = getattr(error, "param", None)
    headers = {"retry-after": str(RETRY_AFTER_S)} if is_retryable else {}
    return (
        status,
        body_of(str(error), error_type, param, getattr(error, "code", None) or code),
        headers,
    )


def body_of(message: str, error_type: str, param: str | None, code: str | None) -> dict[str, Any]:
    """OpenAI's error body."""
    return {"error": {"message": message, "type": error_type, "param": param, "code": code}}


def from_validation(error: ValidationError | RequestValidationError) -> InvalidRequest:
    """The first fault that pydantic found, with the path of the field."""
    fault = error.errors()[0]
    parts = [part for part in fault["loc"] if not _is_union_branch(part)]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    path = path.removeprefix(".")
    given = fault.get("input")
    shown = f", got {type(given).__name__}" if not isinstance(given, dict | list) else ""
    if isinstance(given, int | float | bool):
        shown = f", got {given!r}"
    return InvalidRequest(f"{path or 'body'}: {fault['msg']}{shown}.", param=path or None)


def _is_union_branch(part: int | str) -> bool:
    """Pydantic names the branch of a union it tried; the caller's body has no such level."""
    return part in ("str", "int") or (isinstance(part, str) and part.startswith("list["))
