"""What is asked: checks a completion request and makes the body that goes upstream. No I/O.

Here stands what needs no tokenizer and no chat template; the router checks the rest and its errors
pass through. Fields by which Millrace's own parts talk to each other are dropped: a client that
could set `kv_transfer_params` would name other people's KV blocks. No message repeats what the
client sent.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson

from gateway.errors import BodyInvalid

Json = dict[str, Any]

INTERNAL_FIELDS = frozenset(
    {
        # how prefill and decode hand a request over, and Dynamo's own extensions
        "kv_transfer_params",
        "nvext",
        "prefill_result",
        "extra_args",
        "routing",
        "router_config_override",
        "priority",
        # vLLM's: names the request inside the engine, or passes arguments around its checks
        "request_id",
        "vllm_xargs",
    }
)
MAX_CHOICES = 128
"""OpenAI's own limit for `n`."""


class Endpoint(Enum):
    """The two completion endpoints, named as in usage events."""

    CHAT_COMPLETIONS = "chat.completions"
    COMPLETIONS = "completions"

    @property
    def path(self) -> str:
        """Below the upstream's address."""
        return "/v1/" + self.value.replace(".", "/")


@dataclass(frozen=True)
class CheckedBody:
    """A request that may go upstream."""

    model: str
    is_stream: bool
    wants_usage: bool
    """The client itself asked for the usage event of a stream."""
    session_hint: str | None
    """What the client said to tell its conversations apart; never forwarded as it is."""
    payload: bytes


def check_body(raw: bytes, endpoint: Endpoint) -> CheckedBody:
    """Parses and checks a body; raises BodyInvalid with the field's name."""
    body = _parse(raw)
    model = _model(body)
    match endpoint:
        case Endpoint.CHAT_COMPLETIONS:
            _check_messages(body)
        case Endpoint.COMPLETIONS:
            _check_prompt(body)
    for field, check in _FIELD_CHECKS.items():
        if body.get(field) is not None:
            check(body[field], field)
    is_stream = body.get("stream") is True
    options = body.get("stream_options")
    if options is not None and not is_stream:
        raise BodyInvalid(
            "`stream_options` is only allowed when `stream` is true.", "stream_options"
        )
    if is_stream:
        body["stream_options"] = {**(options or {}), "include_usage": True}
    return CheckedBody(
        model=model,
        is_stream=is_stream,
        wants_usage=is_stream and bool((options or {}).get("include_usage")),
        session_hint=body.get("prompt_cache_key") or body.get("user"),
        payload=_written(without_internal_fields(body)),
    )


def without_internal_fields(body: Json) -> Json:
    """The body with nothing in it that only Millrace's own parts may say."""
    return {field: value for field, value in body.items() if field not in INTERNAL_FIELDS}


def session_id(team_id: str, hint: str) -> str:
    """A stable name of a conversation: tells nothing of the hint and never equals another
    team's."""
    return hashlib.sha256(f"{team_id}\x00{hint}".encode()).hexdigest()[:32]


def _written(body: Json) -> bytes:
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError as error:  # it reads deeper nesting than it writes
        raise BodyInvalid(
            "Expected the request body to be JSON of at most 254 levels of nesting, got more."
        ) from error


def _parse(raw: bytes) -> Json:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        # The error's own text is safe: it names a position, never the document.
        raise BodyInvalid(
            f"Expected the request body to be JSON: {error.msg} at character {error.pos}."
        ) from None
    if not isinstance(body, dict):
        raise BodyInvalid(f"Expected the request body to be a JSON object, got {_kind(body)}.")
    return body


def _model(body: Json) -> str:
    model = body.get("model")
    if model is None:
        raise BodyInvalid("You must provide a model: send its name in `model`.", "model")
    if not isinstance(model, str) or not model:
        raise BodyInvalid(f"Expected `model` to be a model's name, got {_kind(model)}.", "model")
    return model


def _check_messages(body: Json) -> None:
    messages = body.get("messages")
    if messages is None:
        raise BodyInvalid("Missing required parameter: `messages`, a list of messages.", "messages")
    if not isinstance(messages, list):
        raise BodyInvalid(f"Expected `messages` to be a list, got {_kind(messages)}.", "messages")
    if not messages:
        raise BodyInvalid("Expected `messages` to hold at least one message, got none.", "messages")
    for i, message in enumerate(messages):
        if not isinstance(message, dict):
            raise BodyInvalid(
                f"Expected `messages[{i}]` to be an object with `role` and `content`, "
                f"got {_kind(message)}.",
                f"messages[{i}]",
            )
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise BodyInvalid(
                f"Expected `messages[{i}].role` to be a string, got {_kind(role)}.",
                f"messages[{i}].role",
            )


def _check_prompt(body: Json) -> None:
    prompt = body.get("prompt")
    if prompt is None:
        raise BodyInvalid("Missing required parameter: `prompt`.", "prompt")
    if prompt in ("", []):
        raise BodyInvalid("Expected `prompt` to hold some text or tokens, got none.", "prompt")
    is_text = isinstance(prompt, str)
    is_list = isinstance(prompt, list) and (
        all(isinstance(part, str) and part for part in prompt)
        or _is_tokens(prompt)
        or all(part and _is_tokens(part) for part in prompt)
    )
    if not is_text and not is_list:
        raise BodyInvalid(
            "Expected `prompt` to be text, a list of texts, a list of token numbers, or a list of "
            f"such lists, none of them empty; got {_kind(prompt)}.",
            "prompt",
        )


def _is_tokens(part: object) -> bool:
    return isinstance(part, list) and all(type(token) is int and token >= 0 for token in part)


def _boolean(value: object, field: str) -> None:
    if not isinstance(value, bool):
        raise BodyInvalid(f"Expected `{field}` to be true or false, got {_kind(value)}.", field)


def _text(value: object, field: str) -> None:
    if not isinstance(value, str):
        raise BodyInvalid(f"Expected `{field}` to be a string, got {_kind(value)}.", field)


def _stream_options(value: object, field: str) -> None:
    if not isinstance(value, dict):
        raise BodyInvalid(f"Expected `{field}` to be an object, got {_kind(value)}.", field)
    if value.get("include_usage") is not None:
        _boolean(value["include_usage"], f"{field}.include_usage")


def _integer(least: int, most: int | None = None) -> Callable[[object, str], None]:
    expected = f"an integer of at least {least}" + ("" if most is None else f" and at most {most}")

    def check(value: object, field: str) -> None:
        if type(value) is not int:
            raise BodyInvalid(f"Expected `{field}` to be {expected}, got {_kind(value)}.", field)
        if value < least or (most is not None and value > most):
            raise BodyInvalid(f"Expected `{field}` to be {expected}, got {value}.", field)

    return check


def _number(least: float, most: float) -> Callable[[object, str], None]:
    expected = f"a number from {least:g} to {most:g}"

    def check(value: object, field: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BodyInvalid(f"Expected `{field}` to be {expected}, got {_kind(value)}.", field)
        if not least <= value <= most:
            raise BodyInvalid(f"Expected `{field}` to be {expected}, got {value:g}.", field)

    return check


_FIELD_CHECKS: dict[str, Callable[[Any, str], None]] = {
    "stream": _boolean,
    "stream_options": _stream_options,
    "max_tokens": _integer(1),
    "max_completion_tokens": _integer(1),
    "temperature": _number(0, 2),
    "top_p": _number(0, 1),
    "n": _integer(1, MAX_CHOICES),
    "presence_penalty": _number(-2, 2),
    "frequency_penalty": _number(-2, 2),
    "user": _text,
    "prompt_cache_key": _text,
}


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case "":
            return "an empty string"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"
