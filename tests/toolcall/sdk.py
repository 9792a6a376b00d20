"""A case through the official OpenAI SDK: independent of how the suite itself reads the wire."""

import json
from typing import Any

import openai

from toolcheck_suite.answers import Answer, CallReply, ErrorReply, error_of

EXTRA_FIELDS = ("structured_outputs", "chat_template_kwargs")
"""Fields that the SDK does not know by name."""


def whole(client: openai.OpenAI, model: str, request: dict[str, Any]) -> Answer:
    """The answer of a request that is not streamed."""
    try:
        completion = client.chat.completions.create(model=model, **_arguments(request))
    except openai.APIStatusError as error:
        return Answer(error=error_of(error.status_code, {"error": error.body}))
    (choice,) = completion.choices
    message = choice.message
    return Answer(
        reasoning=getattr(message, "reasoning_content", None) or "",
        content=message.content or "",
        calls=tuple(
            CallReply(call.id, call.function.name, call.function.arguments)
            for call in message.tool_calls or ()
        ),
        finish=choice.finish_reason,
    )


def streamed(client: openai.OpenAI, model: str, request: dict[str, Any]) -> Answer:
    """The answer of the stream, put together by the SDK's own accumulator."""
    parts: dict[str, str] = {"reasoning": ""}
    try:
        with client.chat.completions.stream(model=model, **_arguments(request)) as stream:
            for event in stream:
                if event.type == "chunk":
                    for choice in event.chunk.choices:
                        given = getattr(choice.delta, "reasoning_content", None)
                        parts["reasoning"] += given or ""
            completion = stream.current_completion_snapshot
    except openai.APIStatusError as error:
        reply = error_of(error.status_code, {"error": error.body})
        return Answer(error=reply, is_stream=True)
    except openai.LengthFinishReasonError as error:
        completion = error.completion
    except openai.APIError as error:
        body = error.body if isinstance(error.body, dict) else {}
        reply = ErrorReply(200, body.get("code"), body.get("param"), str(error))
        return Answer(error=reply, is_stream=True)
    (choice,) = completion.choices
    message = choice.message
    return Answer(
        reasoning=parts["reasoning"],
        content=message.content or "",
        calls=tuple(
            CallReply(call.id, call.function.name, call.function.arguments)
            for call in message.tool_calls or ()
        ),
        finish=choice.finish_reason,
        is_stream=True,
    )


def _arguments(request: dict[str, Any]) -> dict[str, Any]:
    extra = {name: request[name] for name in EXTRA_FIELDS if name in request}
    known = {name: value for name, value in request.items() if name not in EXTRA_FIELDS}
    return {**known, "extra_body": extra} if extra else json.loads(json.dumps(known))
