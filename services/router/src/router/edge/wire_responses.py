"""OpenAI's response bodies: whole answers and server-sent events."""

import time
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from router.domain import TextDelta, Usage

Endpoint = Literal["chat.completions", "completions"]
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Envelope:
    """What every body of one answer repeats."""

    endpoint: Endpoint
    request_id: str
    model: str
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def answer_id(self) -> str:
        """The id of the answer, as OpenAI's libraries show it."""
        prefix = "chatcmpl" if self.endpoint == "chat.completions" else "cmpl"
        return f"{prefix}-{self.request_id}"

    def body(self, text: str, finish_reason: str, usage: Usage) -> bytes:
        """The answer as one JSON body."""
        if self.endpoint == "chat.completions":
            choice: dict[str, Any] = {
                "message": {"role": "assistant", "content": text, "refusal": None}
            }
        else:
            choice = {"text": text}
        return orjson.dumps(
            {
                **self._head("chat.completion", "text_completion"),
                "choices": [
                    {"index": 0, **choice, "logprobs": None, "finish_reason": finish_reason}
                ],
                "usage": usage.as_openai(),
            }
        )

    def first_event(self) -> bytes:
        """The event that names the role; completions have none."""
        if self.endpoint == "completions":
            return b""
        return self._event({"delta": {"role": "assistant", "content": ""}}, None)

    def delta_event(self, delta: TextDelta) -> bytes:
        """New text and, with the last one, the finish reason."""
        if self.endpoint == "completions":
            return self._event({"text": delta.text}, delta.finish_reason)
        events = b""
        if delta.text:
            events += self._event({"delta": {"content": delta.text}}, None)
        if delta.finish_reason is not None:
            events += self._event({"delta": {}}, delta.finish_reason)
        return events

    def usage_event(self, usage: Usage) -> bytes:
        """The event without choices that carries the usage."""
        head = self._head("chat.completion.chunk", "text_completion")
        return _sse({**head, "choices": [], "usage": usage.as_openai()})

    def _event(self, content: dict[str, Any], finish_reason: str | None) -> bytes:
        head = self._head("chat.completion.chunk", "text_completion")
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}
        return _sse({**head, "choices": [choice]})

    def _head(self, chat_object: str, completion_object: str) -> dict[str, Any]:
        is_chat = self.endpoint == "chat.completions"
        return {
            "id": self.answer_id,
            "object": chat_object if is_chat else completion_object,
            "created": self.created,
            "model": self.model,
        }


def error_event(body: dict[str, Any]) -> bytes:
    """The event that ends a stream that cannot be completed; no [DONE] follows it."""
    return _sse(body)


def _sse(body: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(body) + b"\n\n"
