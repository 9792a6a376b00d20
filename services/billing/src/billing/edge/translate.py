"""The one table from an error to what a caller gets, for HTTP and gRPC alike."""

from dataclasses import dataclass

import grpc
from sqlalchemy.exc import DBAPIError

from billing import errors
from billing.store.database import is_about_content, is_away


@dataclass(frozen=True)
class Reply:
    """Status, code and words of an error; `code` and `type` follow OpenAI's error bodies."""

    http_status: int
    grpc_status: grpc.StatusCode
    type: str
    code: str
    message: str
    is_retryable: bool = False


DATABASE_AWAY = Reply(
    503,
    grpc.StatusCode.UNAVAILABLE,
    "server_error",
    "database_unavailable",
    "Billing cannot reach its database at the moment. Try again shortly.",
    is_retryable=True,
)

UNSTORABLE = Reply(
    400,
    grpc.StatusCode.INVALID_ARGUMENT,
    "invalid_request_error",
    "invalid_value",
    "The request has a value that cannot be stored, such as text with a NUL character.",
)
INTERNAL = Reply(
    500,
    grpc.StatusCode.INTERNAL,
    "server_error",
    "internal_error",
    "Billing failed in a way it did not foresee; its log has the details.",
)
"""For what `reply_to` does not know. The error's own words stay here: they may hold statements."""


def reply_to(error: Exception) -> Reply | None:
    """What to answer, or None when the error was not foreseen."""
    match error:
        case errors.TeamNotFound():
            return _not_found("team_not_found", error)
        case errors.KeyNotFound():
            return _not_found("key_not_found", error)
        case errors.TeamNameTaken():
            return Reply(
                409,
                grpc.StatusCode.ALREADY_EXISTS,
                "invalid_request_error",
                "team_name_taken",
                str(error),
            )
        case errors.InvalidPeriod() | errors.InvalidQuestion():
            return Reply(
                400,
                grpc.StatusCode.INVALID_ARGUMENT,
                "invalid_request_error",
                "invalid_value",
                str(error),
            )
        case DBAPIError() | OSError() | TimeoutError() if is_away(error):
            return DATABASE_AWAY
        case DBAPIError() if is_about_content(error):
            return UNSTORABLE
    return None


def _not_found(code: str, error: Exception) -> Reply:
    return Reply(404, grpc.StatusCode.NOT_FOUND, "invalid_request_error", code, str(error))
