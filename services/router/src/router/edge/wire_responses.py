"""OpenAI's response bodies: whole answers and server-sent events."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from router.domain import Usage
from toolcall.events import (
    ArgumentsDelta,
    CallEnded,
    CallStarted,
    ContentDelta,
    Event,
    Finished,
    ReasoningDelta,
)

Endpoint = Literal["chat.completions", "completions"]
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class CallIds:
    """The ids of an answer's tool calls.

    A model that numbers its calls (Kimi) reads the id again in the next turn's prompt, so the id is
    in its own form, `functions.NAME:NUMBER`.
    """

    request_id: str
    is_numbered: bool = False
    first_number: int = 0

    def of(self, index: int, name: str) -> str:
        """The id of the answer's call number `index`."""
        if self.is_numbered:
            return f"functions.{name}:{self.first_number + index}"
        return f"call_{self.request_id.replace('-', '')}_{index}"


@dataclass(frozen=True)
class Envelope:
    """What every body of one answer repeats."""

    endpoint: Endpoint
    request_id: str
    model: str
    call_ids: CallIds
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def answer_id(self) -> str:
        """The id of the answer, as OpenAI's libraries show it."""
        prefix = "chatcmpl" if self.endpoint == "chat.completions" else "cmpl"
        return f"{prefix}-{self.request_id}"

    def body(self, events: Iterable[Event], usage: Usage) -> bytes:
        """The answer as one JSON body."""
        folded = _Folded()
        for event in events:
            folded.add(event)
        if self.endpoint == "chat.completions":
            choice: dict[str, Any] = {"message": folded.message(self.call_ids)}
        else:
            choice = {"text": "".join(folded.content)}
        return orjson.dumps(
            {
                **self._head("chat.completion", "text_completion"),
                "choices": [
                    {"index": 0, **choice, "logprobs": None, "finish_reason": folded.finish_reason}
                ],
                "usage": usage.as_openai(),
            }
        )

    def first_event(self) -> bytes:
        """The event that names the role; completions have none."""
        if self.endpoint == "completions":
            return b""
        return self._event({"delta": {"role": "assistant", "content": ""}}, None)

    def event(self, event: Event) -> bytes:
        """One event of the answer as a server-sent event; empty where the wire has none."""
        is_chat = self.endpoint == "chat.completions"
        match event:
            case ContentDelta(text):
                return self._event({"delta": {"content": text}} if is_chat else {"text": text})
            case ReasoningDelta(text):
                return self._event({"delta": {"reasoning_content": text}})
            case CallStarted(index, name):
                function = {"name": name, "arguments": ""}
                call = {"id": self.call_ids.of(index, name), "type": "function"}
                return self._call_event({"index": index, **call, "function": function})
            case ArgumentsDelta(index, text):
                return self._call_event({"index": index, "function": {"arguments": text}})
            case Finished(reason):
                return self._event({"delta": {}} if is_chat else {"text": ""}, reason)
            case _:
                return b""

    def usage_event(self, usage: Usage) -> bytes:
        """The event without choices that carries the usage."""
        head = self._head("chat.completion.chunk", "text_completion")
        return _sse({**head, "choices": [], "usage": usage.as_openai()})

    def _call_event(self, call: dict[str, Any]) -> bytes:
        return self._event({"delta": {"tool_calls": [call]}})

    def _event(self, content: dict[str, Any], finish_reason: str | None = None) -> bytes:
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


class _Folded:
    """The events of a whole answer, added up; a call that never ended is left out.

    Texts are joined once, at the end: an answer has as many deltas as tokens.
    """

    def __init__(self) -> None:
        self.content: list[str] = []
        self.finish_reason = "stop"
        self._reasoning: list[str] = []
        self._names: dict[int, str] = {}
        self._arguments: dict[int, list[str]] = {}
        self._ended: list[int] = []

    def add(self, event: Event) -> None:
        match event:
            case ContentDelta(text):
                self.content.append(text)
            case ReasoningDelta(text):
                self._reasoning.append(text)
            case CallStarted(index, name):
                self._names[index], self._arguments[index] = name, []
            case ArgumentsDelta(index, text):
                self._arguments[index].append(text)
            case CallEnded(index):
                self._ended.append(index)
            case Finished(reason):
                self.finish_reason = reason

    def message(self, call_ids: CallIds) -> dict[str, Any]:
        calls = [
            {
                "id": call_ids.of(index, self._names[index]),
                "type": "function",
                "function": {
                    "name": self._names[index],
                    "arguments": "".join(self._arguments[index]),
                },
            }
            for index in self._ended
        ]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(self.content) or (None if calls else ""),
            "refusal": None,
        }
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if calls:
            message["tool_calls"] = calls
        return message


def error_event(body: dict[str, Any]) -> bytes:
    """The event that ends a stream that cannot be completed; no [DONE] follows it."""
    return _sse(body)


def _sse(body: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(body) + b"\n\n"
