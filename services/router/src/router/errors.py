"""What can go wrong with a request in the router; `edge/error_replies.py` translates each once."""

from toolcall.errors import Fault


class RouterError(Exception):
    """Base of the router's errors; the message is written for the API user."""


class InvalidRequest(RouterError):
    """The request itself cannot be served; `param` names the field at fault."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class ContextTooLong(InvalidRequest):
    """The prompt leaves no room for an answer in the model's context."""

    def __init__(self, prompt_tokens: int, context_tokens: int, param: str) -> None:
        super().__init__(
            f"This model's context holds {context_tokens} tokens, prompt and answer together, but"
            f" the prompt alone has {prompt_tokens} tokens. Shorten the {param}.",
            param=param,
            code="context_length_exceeded",
        )


class InvalidModelOutput(RouterError):
    """The model's output broke the request's own rules, and no retry was possible or helped."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"The model's answer was not usable: {fault.message}. Try again.")
        self.code = "invalid_response" if fault.kind == "invalid_content" else "invalid_tool_call"


class ModelNotServed(RouterError):
    """This router serves another model."""


class NoWorkers(RouterError):
    """No worker that could answer came back in time."""


class WorkerFailed(RouterError):
    """A worker was lost or refused; another one may do."""

    def __init__(self, message: str, worker_id: int, *, is_gone: bool) -> None:
        super().__init__(message)
        self.worker_id = worker_id
        self.is_gone = is_gone


class GenerationFailed(RouterError):
    """The engine gave this request up (its grammar failed there, for one) and runs on."""

    def __init__(self, message: str) -> None:
        super().__init__(f"The model could not generate this answer: {message}")


class AnswerFailed(RouterError):
    """The router itself failed on an answer; its log has the cause."""

    def __init__(self, request_id: str) -> None:
        super().__init__(
            "The router failed on this answer. Try again; if it happens again, report the request"
            f" {request_id}: the router's log has the cause."
        )


class DeadlineExceeded(RouterError):
    """The time that the caller gave is over."""


class RequestCancelled(RouterError):
    """The caller cancelled; what was computed until then is still reported."""
