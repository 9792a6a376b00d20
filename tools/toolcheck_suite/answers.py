"""What a client has after the last byte, whole or folded from a stream, and how well it was formed.

A stream is folded as SDKs do it: by call index, names and arguments appended. What an SDK would
forgive and OpenAI never sends is noted as malformed.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ErrorReply:
    """An error body, as an HTTP reply or as the last event of a stream."""

    status: int
    code: str | None = None
    param: str | None = None
    message: str = ""


@dataclass(frozen=True)
class CallReply:
    """A call as it came; `arguments` is its text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Answer:
    """One answer, however it came. `malformed` holds what is wrong with its form."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[CallReply, ...] = ()
    finish: str | None = None
    error: ErrorReply | None = None
    malformed: tuple[str, ...] = ()
    is_stream: bool = False

    def comparable(self) -> dict[str, Any]:
        """What must be equal in both modes; ids are new with every answer."""
        return {
            "reasoning": self.reasoning,
            "content": self.content,
            "calls": [[call.name, call.arguments] for call in self.calls],
            "finish": self.finish,
            "error": None if self.error is None else self.error.code,
        }

    def shown(self) -> str:
        """One line for people."""
        if self.error is not None:
            error = self.error
            return f"error {error.status} code={error.code} param={error.param}: {error.message}"
        calls = "; ".join(f"{call.name}({call.arguments})" for call in self.calls)
        return (
            f"finish={self.finish} content={self.content!r} calls=[{calls}]"
            f" reasoning={self.reasoning!r}"
        )


def error_of(status: int, body: Any) -> ErrorReply:
    """An error from whatever body came with it."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return ErrorReply(status, message=str(body)[:300])
    code, param = error.get("code"), error.get("param")
    return ErrorReply(
        status,
        None if code is None else str(code),
        None if param is None else str(param),
        str(error.get("message")),
    )


def whole(body: Mapping[str, Any]) -> Answer:
    """The answer of a reply with status 200."""
    problems: list[str] = []
    choices = body.get("choices")
    if not isinstance(choices, list) or len(choices) != 1:
        return Answer(malformed=(f"expected one choice: {str(body)[:300]}",))
    message = choices[0].get("message") or {}
    given = message.get("tool_calls")
    if given is not None and not isinstance(given, list):
        problems.append(f"tool_calls is no list: {given!r}")
        given = []
    calls = []
    for index, call in enumerate(given or ()):
        function = call.get("function") or {}
        if call.get("type") != "function":
            problems.append(f"tool_calls[{index}].type is {call.get('type')!r}")
        if not isinstance(function.get("arguments"), str):
            problems.append(f"tool_calls[{index}].function.arguments is no string")
        name, arguments = function.get("name"), function.get("arguments")
        calls.append(CallReply(call.get("id") or "", str(name), str(arguments)))
    problems += _ids_at_fault([call.id for call in calls])
    return Answer(
        reasoning=_reasoning(message),
        content=message.get("content") or "",
        calls=tuple(calls),
        finish=choices[0].get("finish_reason"),
        malformed=tuple(problems),
    )


@dataclass
class Fold:
    """Takes a stream's events one by one; `answer` is what a client has at its end."""

    status: int = 200
    _reasoning: str = ""
    _content: str = ""
    _calls: dict[int, list[str]] = field(default_factory=dict)
    _finish: str | None = None
    _error: ErrorReply | None = None
    _ids: set[str] = field(default_factory=set)
    _problems: list[str] = field(default_factory=list)
    _is_done: bool = False

    def add(self, payload: str) -> None:
        """One `data:` line without its prefix."""
        if self._is_done:
            self._problems.append("events after [DONE]")
        if payload == "[DONE]":
            self._is_done = True
            return
        try:
            event = json.loads(payload)
        except json.JSONDecodeError:
            self._problems.append(f"an event is no JSON: {payload[:200]}")
            return
        if event.get("error") is not None:
            self._error = error_of(self.status, event)
            return
        if event.get("id"):
            self._ids.add(event["id"])
        for choice in event.get("choices") or ():
            self._add_choice(choice)

    def answer(self) -> Answer:
        """The whole answer. Call it once, after the last event."""
        self._check_end()
        calls = [CallReply(*self._calls[index]) for index in sorted(self._calls)]
        problems = [*self._problems, *_ids_at_fault([call.id for call in calls])]
        return Answer(
            reasoning=self._reasoning,
            content=self._content,
            calls=tuple(calls),
            finish=self._finish,
            error=self._error,
            malformed=tuple(problems),
            is_stream=True,
        )

    def _add_choice(self, choice: Mapping[str, Any]) -> None:
        delta = choice.get("delta") or {}
        has_text = bool(delta.get("content") or delta.get("tool_calls") or _reasoning(delta))
        if self._finish is not None and (has_text or choice.get("finish_reason")):
            self._problems.append("something comes after the finish reason")
        self._reasoning += _reasoning(delta)
        self._content += delta.get("content") or ""
        for call in delta.get("tool_calls") or ():
            self._add_call(call)
        self._finish = choice.get("finish_reason") or self._finish

    def _add_call(self, call: Mapping[str, Any]) -> None:
        index, function = call.get("index"), call.get("function") or {}
        if not isinstance(index, int):
            self._problems.append(f"a call's delta has no index: {call}")
            return
        if index not in self._calls:
            if index != len(self._calls):
                self._problems.append(f"index {index} comes after {len(self._calls) - 1}")
            if not call.get("id") or not function.get("name") or call.get("type") != "function":
                self._problems.append(f"the first delta of call {index} lacks id, type or name")
            self._calls[index] = [call.get("id") or "", function.get("name") or "", ""]
        else:
            if index != len(self._calls) - 1:
                self._problems.append(f"deltas of call {index} go on after the next one began")
            if call.get("id") or function.get("name"):
                self._problems.append(f"id or name of call {index} come more than once")
            self._calls[index][1] += function.get("name") or ""
        self._calls[index][2] += function.get("arguments") or ""

    def _check_end(self) -> None:
        if len(self._ids) > 1:
            self._problems.append(f"the chunks of one answer have {len(self._ids)} ids")
        if self._error is not None:
            if self._is_done:
                self._problems.append("an error event and [DONE]")
            if self._finish is not None:
                self._problems.append("an error event and a finish reason")
            return
        if self._finish is None:
            self._problems.append("the stream ends without a finish reason")
        if not self._is_done:
            self._problems.append("the stream ends without [DONE]")


def _reasoning(message: Mapping[str, Any]) -> str:
    """Servers call the field `reasoning_content` (DeepSeek's name) or `reasoning`."""
    return message.get("reasoning_content") or message.get("reasoning") or ""


def _ids_at_fault(ids: Iterable[str]) -> list[str]:
    known = list(ids)
    if "" in known:
        return ["a call has no id"]
    return ["two calls have the same id"] if len(set(known)) != len(known) else []
