"""Usage read from the bytes that pass. No I/O.

Bytes go to the client as they came, in whole server-sent events. Only three kinds of event are
looked into: one with usage (counted, and taken out when the client had not asked for it), `[DONE]`
and an error event. The last two end the stream and are handed back apart, so that the caller can
write the usage event down before the client sees the end.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson

from gateway.errors import UpstreamBroken

MAX_EVENT_BYTES = 4 << 20
"""An event is one chunk of one answer; what grows beyond this is not an event stream."""

_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_USAGE = re.compile(rb'"usage"\s*:\s*\{')
_ERROR = re.compile(rb'data:\s*\{\s*"error"')
# A piece of an answer that is not empty took at least one token; inside of a string a quote would
# have a backslash before it, so text cannot imitate these.
_TOKENS = re.compile(rb'"(?:content|text|reasoning|reasoning_content|arguments)"\s*:\s*"[^"]')
_DONE = b"[DONE]"


@dataclass(frozen=True)
class Usage:
    """Token counts as in a response: prompt_tokens includes cached_tokens."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class StreamEnd(Enum):
    """How an upstream ended its stream."""

    DONE = "done"
    ERROR = "error"


@dataclass(frozen=True)
class Passage:
    """What became of some bytes: `forward` may go out at once, `last` only after the usage event is
    down."""

    forward: bytes
    end: StreamEnd | None = None
    last: bytes = b""


class AnswerMeter:
    """Follows one answer, streamed or whole; `usage` is None until the upstream told it."""

    def __init__(self, strips_usage: bool) -> None:
        self.usage: Usage | None = None
        self.least_completion_tokens = 0
        self.told_prompt_tokens = 0
        self._strips_usage = strips_usage
        self._partial = b""

    def feed(self, data: bytes) -> Passage:
        """Takes the next bytes; an incomplete event waits inside for the rest of it."""
        buffer = self._partial + data if self._partial else data
        whole = _whole_events_length(buffer)
        self._partial = buffer[whole:]
        if len(self._partial) > MAX_EVENT_BYTES:
            raise UpstreamBroken("The model's answer was no event stream.")
        block = buffer[:whole]
        if _USAGE.search(block) or _DONE in block or _ERROR.search(block):
            return self._feed_events(block)
        self.least_completion_tokens += len(_TOKENS.findall(block))
        return Passage(block)

    def feed_whole(self, body: bytes) -> None:
        """Takes a whole (not streamed) answer; raises UpstreamBroken when it is no JSON object."""
        parsed = _parse_object(body)
        if parsed is None:
            raise UpstreamBroken("The model's answer was not JSON.")
        self.usage = read_usage(parsed)
        self.least_completion_tokens = len(_TOKENS.findall(body))

    def feed_error(self, body: bytes) -> None:
        """Takes the body of an error: one that cost tokens, as a cancel does, says how many."""
        self.usage = read_usage(_parse_object(body) or {})

    def known_usage(self) -> Usage:
        """The upstream's count, or what is certain without it."""
        if self.usage is not None:
            return self.usage
        return Usage(
            prompt_tokens=self.told_prompt_tokens, completion_tokens=self.least_completion_tokens
        )

    def told(self, prompt_tokens: str) -> None:
        """Takes the router's header that counts the prompt; anything but a number says nothing."""
        if prompt_tokens.isascii() and prompt_tokens.isdigit():
            self.told_prompt_tokens = int(prompt_tokens)

    def _feed_events(self, block: bytes) -> Passage:
        forward = bytearray()
        start = 0
        for boundary in _EVENT_END.finditer(block):
            event = block[start : boundary.end()]
            start = boundary.end()
            payload = _payload(event)
            if payload == _DONE:
                return Passage(bytes(forward), StreamEnd.DONE, event)
            parsed = _parse_object(payload) if _needs_parsing(event) else None
            if parsed is not None and parsed.get("error"):
                return Passage(bytes(forward), StreamEnd.ERROR, event)
            usage = None if parsed is None else read_usage(parsed)
            if usage is not None:
                self.usage = usage
                if self._strips_usage and not (parsed or {}).get("choices"):
                    continue
            self.least_completion_tokens += len(_TOKENS.findall(event))
            forward += event
        return Passage(bytes(forward))


def read_usage(answer: dict[str, Any]) -> Usage | None:
    """The `usage` of an answer or chunk, None when it has none or one that makes no sense."""
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    prompt = _count(usage.get("prompt_tokens"))
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else 0
    completion = _count(usage.get("completion_tokens"))
    if prompt is None or cached is None or completion is None:
        return None
    return Usage(prompt, min(cached, prompt), completion)


def is_openai_error(body: bytes) -> bool:
    """True for an error body that a client of OpenAI understands."""
    parsed = _parse_object(body)
    return parsed is not None and isinstance(parsed.get("error"), dict)


def _count(value: object) -> int | None:
    """A token count, 0 for none; None when it is no count."""
    if value is None:
        return 0
    return value if type(value) is int and value >= 0 else None


def _whole_events_length(buffer: bytes) -> int:
    """The number of bytes up to the end of the last complete event."""
    # Nearly every upstream ends its events, and its writes, with "\n\n".
    if buffer.endswith(b"\n\n"):
        return len(buffer)
    ends = (
        buffer.rfind(mark) + len(mark) for mark in (b"\n\n", b"\r\n\r\n", b"\r\r") if mark in buffer
    )
    return max(ends, default=0)


def _payload(event: bytes) -> bytes:
    lines = (line for line in event.splitlines() if line.startswith(b"data:"))
    return b"\n".join(line[5:].strip() for line in lines)


def _needs_parsing(event: bytes) -> bool:
    return _USAGE.search(event) is not None or _ERROR.search(event) is not None


def _parse_object(payload: bytes) -> dict[str, Any] | None:
    try:
        parsed = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None
    return parsed if isinstance(parsed, dict) else None
