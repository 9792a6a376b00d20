"""A request and its answer inside the router, free of HTTP and of Dynamo."""

from dataclasses import dataclass
from typing import Any, Literal

from wire.deadlines import Deadline

FinishReason = Literal["stop", "length"]
"""Why the engine ended."""


@dataclass(frozen=True)
class Generation:
    """One prompt to complete: rendered, tokenised and checked."""

    request_id: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: dict[str, Any]
    stop_token_ids: tuple[int, ...]
    stop_texts: tuple[str, ...]
    deadline: Deadline
    min_tokens: int = 0
    ignore_eos: bool = False
    session_id: str | None = None
    priority: int = 0
    grammar: str | None = None
    """What the answer must match, in xgrammar's EBNF."""
    grammar_prefix_tokens: int = 0
    """How many last tokens of `prompt` are the beginning of the answer that the grammar covers."""


@dataclass
class Usage:
    """Exact token counts of one request, over all of its attempts."""

    prompt_tokens: int
    cached_tokens: int = 0
    completion_tokens: int = 0

    def as_openai(self) -> dict[str, Any]:
        """OpenAI's usage object."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


@dataclass(frozen=True)
class Tokens:
    """Newly generated tokens; the last of a request carries its finish reason."""

    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None


@dataclass
class Path:
    """Which workers a request used, for traces, logs and response headers."""

    prefill_worker: int | None = None
    decode_worker: int | None = None
    is_prefill_local: bool = False
    migrations: int = 0
