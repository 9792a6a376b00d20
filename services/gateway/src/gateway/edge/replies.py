"""Errors into replies, by one table; every body has OpenAI's shape."""

from typing import Any

import orjson
from starlette.responses import Response

from gateway import errors

_INVALID = "invalid_request_error"
_SERVER = "server_error"

TABLE: dict[type[errors.GatewayError], tuple[int, str, str | None]] = {
    errors.KeyRefused: (401, _INVALID, "invalid_api_key"),
    errors.TeamSuspended: (403, "permission_error", "team_suspended"),
    errors.ModelUnknown: (404, _INVALID, "model_not_found"),
    errors.BodyInvalid: (400, _INVALID, None),
    errors.QueryInvalid: (400, _INVALID, None),
    errors.BodyTooLarge: (413, _INVALID, "request_too_large"),
    errors.BodyTooSlow: (408, _INVALID, "request_timeout"),
    errors.NotReady: (503, _SERVER, "not_ready"),
    errors.Stopping: (503, _SERVER, "not_ready"),
    errors.TooBusy: (503, _SERVER, "no_capacity"),
    errors.SpoolUnavailable: (503, _SERVER, "usage_unrecordable"),
    errors.NoCapacity: (503, _SERVER, "no_capacity"),
    errors.UpstreamBroken: (502, _SERVER, "upstream_failed"),
    errors.UpstreamSilent: (504, _SERVER, "upstream_timeout"),
    errors.UsageUnavailable: (503, _SERVER, "usage_unavailable"),
}


def error_code(error: errors.GatewayError) -> str:
    """A short name for metrics and logs."""
    return TABLE[type(error)][2] or "invalid_request"


def error_object(error: errors.GatewayError) -> dict[str, Any]:
    """The JSON of an error, the same in a body and in a stream's error event."""
    _, kind, code = TABLE[type(error)]
    return _object(str(error), kind, error.param, code)


def error_response(error: errors.GatewayError) -> Response:
    """The reply to a request that failed before its first byte."""
    headers = {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(error.retry_after_s)
    if isinstance(error, errors.BodyTooLarge) and error.is_unread:
        headers["connection"] = "close"
    if isinstance(error, errors.KeyRefused):
        headers["www-authenticate"] = "Bearer"
    return json_response(error_object(error), TABLE[type(error)][0], headers)


def http_error_response(status: int, path: str, method: str) -> Response:
    """The reply to a path or method that is not served."""
    if status == 404:
        message, code = f"Unknown request URL: {method} {path}.", "unknown_url"
    else:
        message, code = f"Not allowed to {method} on {path}.", "method_not_supported"
    return json_response(_object(message, _INVALID, None, code), status)


def unexpected_response() -> Response:
    """The reply when the gateway itself has a bug; the log has the rest under the request id."""
    message = (
        "The server had an error while processing your request. Quote x-request-id when asking."
    )
    return json_response(_object(message, _SERVER, None, "internal_error"), 500)


def json_response(
    content: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """JSON by orjson."""
    return Response(orjson.dumps(content), status, headers, media_type="application/json")


def _object(message: str, kind: str, param: str | None, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
