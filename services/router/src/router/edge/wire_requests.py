"""OpenAI's request bodies as the router understands them, and their translation into a Generation.

What changes the answer and is not supported is refused by name; what does not change it (`user`,
`metadata`, `store`, ...) is accepted and ignored.
"""

import json
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from router.constrain import Wishes
from router.errors import InvalidRequest

Number = Annotated[float, Field(strict=False)]
MOST_STOPS = 4
UNSUPPORTED = {
    "functions": "functions became tools in OpenAI's API: send tools",
    "function_call": "function_call became tool_choice in OpenAI's API: send tool_choice",
    "logit_bias": "logit_bias is not supported",
    "logprobs": "log probabilities are not supported",
    "top_logprobs": "log probabilities are not supported",
    "audio": "this model answers in text only",
    "modalities": "this model answers in text only",
    "best_of": "best_of is not supported",
    "echo": "echo is not supported",
    "suffix": "suffix is not supported",
}
"""Fields that would change the answer; falsy values and those in NEUTRAL pass."""
GUIDED = re.compile("structured_outputs|guided_(?!decoding_backend$).+")
"""vLLM's fields for constrained answers, also those that are then refused because nothing here
serves them; which library does the constraining makes no difference to an answer."""
CHAT_ONLY = ("messages", "tools", "tool_choice", "parallel_tool_calls", "response_format")
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "modalities": (["text"],),
    "best_of": (1,),
    "function_call": ("none",),
}


class TextPart(BaseModel):
    """A content part; only text is served."""

    type: Literal["text"]
    text: StrictStr


class Message(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: StrictStr | list[TextPart] | None = None

    def for_template(self) -> dict[str, Any]:
        """The message as chat templates read it: text content, `developer` as `system`."""
        content = self.content
        if isinstance(content, list):
            content = "".join(part.text for part in content)
        role = "system" if self.role == "developer" else self.role
        message = {**(self.model_extra or {}), "role": role, "content": content or ""}
        if message.get("tool_calls"):
            message["tool_calls"] = [_call_for_template(call) for call in message["tool_calls"]]
        if message.get("reasoning_content") is None and "reasoning" in message:
            message["reasoning_content"] = message["reasoning"]
        return message


def _call_for_template(call: dict[str, Any]) -> dict[str, Any]:
    """The call with its arguments decoded: templates write each one in the model's own format.

    By the standard library's json, which keeps integers of any size.
    """
    function = call["function"]
    arguments = json.loads(function["arguments"])
    return {**call, "function": {**function, "arguments": arguments}}


class StreamOptions(BaseModel):
    """OpenAI's stream_options."""

    include_usage: StrictBool = False


class CommonRequest(BaseModel):
    """What chat completions and completions share."""

    model_config = ConfigDict(extra="allow")

    model: StrictStr
    stream: StrictBool = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[StrictInt, Field(ge=1)] | None = None
    min_tokens: Annotated[StrictInt, Field(ge=0)] = 0
    temperature: Annotated[float, Field(strict=True, ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(strict=True, gt=0, le=1)] | None = None
    top_k: Annotated[StrictInt, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(strict=True, ge=0, le=1)] | None = None
    n: Annotated[StrictInt, Field(ge=1, le=1)] | None = None
    seed: StrictInt | None = None
    presence_penalty: Annotated[float, Field(strict=True, ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(strict=True, ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Field(strict=True, gt=0)] | None = None
    stop: StrictStr | list[StrictStr] | None = None
    ignore_eos: StrictBool = False

    def refuse_unsupported(self) -> None:
        """Raises InvalidRequest for a field that would change the answer and is not served."""
        for name, reason in UNSUPPORTED.items():
            value = (self.model_extra or {}).get(name)
            if value and value not in NEUTRAL.get(name, ()):
                raise InvalidRequest(
                    f"{name}: {reason}. Leave it out.", param=name, code="unsupported_parameter"
                )

    def answer_tokens(self) -> int | None:
        """The most tokens that the answer may have, None for as many as fit."""
        return self.max_tokens

    def wishes(self) -> Wishes:
        """What shapes the answer, unchecked."""
        return Wishes(guided=self._guided(), is_chat=False)

    def _guided(self) -> dict[str, Any] | None:
        """vLLM's own fields for constrained answers."""
        given = (self.model_extra or {}).items()
        return {
            name: value for name, value in given if GUIDED.fullmatch(name) and value is not None
        } or None

    def stop_texts(self) -> tuple[str, ...]:
        """The stop strings. Raises InvalidRequest for too many or empty ones."""
        stops = [self.stop] if isinstance(self.stop, str) else list(self.stop or [])
        if len(stops) > MOST_STOPS or any(not stop for stop in stops):
            raise InvalidRequest(
                f"stop takes up to {MOST_STOPS} non-empty strings, got {len(stops)}.", param="stop"
            )
        return tuple(stops)

    def sampling(self) -> dict[str, Any]:
        """Sampling options under vLLM's names; what is not given stays the model's default."""
        names = (
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "seed",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
        )
        given = {name: getattr(self, name) for name in names}
        return {name: value for name, value in given.items() if value is not None}


class ChatRequest(CommonRequest):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    tools: Any = None
    tool_choice: Any = None
    parallel_tool_calls: Any = None
    response_format: Any = None
    max_completion_tokens: Annotated[StrictInt, Field(ge=1)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def answer_tokens(self) -> int | None:
        """max_completion_tokens, or its older name."""
        return self.max_completion_tokens or self.max_tokens

    def wishes(self) -> Wishes:
        """What shapes the answer, unchecked (toolcall.requests checks it)."""
        return Wishes(
            tools=self.tools,
            tool_choice=self.tool_choice,
            parallel_tool_calls=self.parallel_tool_calls,
            response_format=self.response_format,
            guided=self._guided(),
        )

    def calls_so_far(self) -> int:
        """Tool calls in the conversation; some models number them over all of it."""
        messages = (message.model_extra or {} for message in self.messages)
        return sum(len(message.get("tool_calls") or ()) for message in messages)


class CompletionRequest(CommonRequest):
    """POST /v1/completions with one prompt, as text or as token ids."""

    prompt: StrictStr | list[StrictInt] | Annotated[list[StrictStr], Field(max_length=1)]

    def refuse_unsupported(self) -> None:
        """Also what only chat completions know."""
        super().refuse_unsupported()
        for name in CHAT_ONLY:
            if (self.model_extra or {}).get(name):
                raise InvalidRequest(
                    f"{name}: only chat completions take it. Ask /v1/chat/completions, or send"
                    " structured_outputs for an answer of a given structure.",
                    param=name,
                    code="unsupported_parameter",
                )

    def answer_tokens(self) -> int | None:
        """OpenAI's default for this endpoint is 16."""
        return 16 if self.max_tokens is None else self.max_tokens
