"""The cases over HTTP, for an endpoint whose engine replays what a marker in the prompt names.

    [[case:ID split:SPLIT run:NONCE]]

Splits say how the engine hands its tokens out: `whole` at once, `tokens` one by one, `runs-N` N at
a time, `cut-N` in two pieces, `late` one by one with the finish in a chunk of its own.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from toolcheck_suite.answers import Answer
from toolcheck_suite.cases import Case, Expected
from toolcheck_suite.client import Client
from toolcheck_suite.report import Outcome, outcome
from toolcheck_suite.rules import Broken

ERROR_CODES = {"invalid_content": "invalid_response"}
OTHER_ERROR_CODE = "invalid_tool_call"
WHOLE_SPLITS = ("tokens",)
STREAM_SPLITS = ("tokens", "whole", "runs-2", "runs-5", "late")


def run(client: Client, case: Case) -> Outcome:
    """One case in both modes and several splits."""
    broken: list[Broken] = []
    sent = request(case, "tokens")
    for split in WHOLE_SPLITS:
        broken += compare(case, client.whole(request(case, split)))
    for split in STREAM_SPLITS:
        broken += compare(case, client.streamed(request(case, split)))
    return outcome(f"scripted {case.group}", case.id, sent, list(dict.fromkeys(broken)))


def request(case: Case, split: str, start: str | None = None) -> dict[str, Any]:
    """The body that makes the engine replay the case; `start` asks a test's template for it."""
    body = dict(case.request)
    body["messages"] = marked(
        body.get("messages"), f"[[case:{case.id} split:{split} run:{_nonce()}]]"
    )
    if start is not None:
        body["chat_template_kwargs"] = {"answer_start": start}
    return body


def marked(messages: Sequence[dict[str, Any]] | None, marker: str) -> list[dict[str, Any]]:
    """The conversation with the marker behind its last user message."""
    given = list(messages or [{"role": "user", "content": "Go on."}])
    last = max(index for index, message in enumerate(given) if message["role"] == "user")
    content = given[last]["content"]
    if isinstance(content, str):
        given[last] = {**given[last], "content": f"{content} {marker}"}
    else:
        given[last] = {**given[last], "content": [*content, {"type": "text", "text": marker}]}
    return given


def final(case: Case) -> Expected:
    """What the client gets in the end: after a retry, what the second output makes."""
    return case.then_expected or case.expected


def compare(case: Case, answer: Answer) -> list[Broken]:
    """Everything in which the answer differs from the case."""
    return list(_compare(case, answer))


def _compare(case: Case, answer: Answer) -> Iterator[Broken]:
    expected = final(case)
    for problem in answer.malformed:
        yield Broken("R0", "OpenAI's form", problem)
    if expected.fault is not None:
        code = ERROR_CODES.get(expected.fault, OTHER_ERROR_CODE)
        if answer.error is None or answer.error.code != code:
            yield Broken("R1", f"an error with code {code} ({expected.fault})", answer.shown())
        return
    if answer.error is not None:
        yield Broken("R0", shown(expected), answer.shown())
        return
    if answer.reasoning != expected.reasoning:
        yield Broken("R4", f"reasoning {expected.reasoning!r}", repr(answer.reasoning))
    if answer.content != expected.content:
        yield Broken("R4", f"content {expected.content!r}", repr(answer.content))
    if answer.finish != expected.finish:
        yield Broken("R5", f"finish {expected.finish}", str(answer.finish))
    yield from _compare_calls(case, expected, answer)


def _compare_calls(case: Case, expected: Expected, answer: Answer) -> Iterator[Broken]:
    came = answer.calls
    if case.ends == "length" and answer.is_stream and len(came) == len(expected.calls) + 1:
        came = came[:-1]  # the beginning of a call that streamed live
    if [call.name for call in came] != [call.name for call in expected.calls]:
        yield Broken("R1", shown(expected), answer.shown())
        return
    for wanted, call in zip(expected.calls, came, strict=True):
        if wanted.text is not None and call.arguments != wanted.text:
            yield Broken("R2", f"arguments {wanted.text}", call.arguments)
        elif canonical(wanted.arguments) != canonical_text(call.arguments):
            yield Broken("R2", f"arguments {canonical(wanted.arguments)}", call.arguments)


def canonical(value: Any) -> str:
    """A JSON value as text: 1, 1.0 and true differ, and the order of keys does not matter."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def canonical_text(text: str) -> str:
    """The same for JSON text; what is no JSON stays itself."""
    try:
        return canonical(json.loads(text))
    except ValueError:
        return f"no JSON: {text}"


def shown(expected: Expected) -> str:
    """An expectation in one line."""
    if expected.fault is not None:
        return f"error ({expected.fault})"
    calls = "; ".join(f"{call.name}({canonical(call.arguments)})" for call in expected.calls)
    return (
        f"finish={expected.finish} content={expected.content!r} calls=[{calls}]"
        f" reasoning={expected.reasoning!r}"
    )


def _nonce() -> str:
    return uuid.uuid4().hex[:12]
