"""OpenAI's request bodies as the router understands them, and their translation into a Generation.

What changes the answer and is not supported is refused by name; what does not change it (`user`,
`metadata`, `store`, ...) is accepted and ignored.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from router.errors import InvalidRequest

Number = Annotated[float, Field(strict=False)]
MOST_STOPS = 4
UNSUPPORTED = {
    "tools": "tool calls are not served by this deployment yet",
    "tool_choice": "tool calls are not served by this deployment yet",
    "functions": "tool calls are not served by this deployment yet",
    "function_call": "tool calls are not served by this deployment yet",
    "response_format": 'only {"type": "text"} is served by this deployment yet',
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
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "tool_choice": ("none",),
    "response_format": ({"type": "text"},),
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
        return {**(self.model_extra or {}), "role": role, "content": content or ""}


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
    max_completion_tokens: Annotated[StrictInt, Field(ge=1)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def answer_tokens(self) -> int | None:
        """max_completion_tokens, or its older name."""
        return self.max_completion_tokens or self.max_tokens


class CompletionRequest(CommonRequest):
    """POST /v1/completions with one prompt, as text or as token ids."""

    prompt: StrictStr | list[StrictInt] | Annotated[list[StrictStr], Field(max_length=1)]

    def answer_tokens(self) -> int | None:
        """OpenAI's default for this endpoint is 16."""
        return 16 if self.max_tokens is None else self.max_tokens
