"""A worker whose engine replays transcripts: real Dynamo on both sides, no model behind it.

    python -m benches.toolcall.replay     (ROUTER_MODEL_*, ROUTER_CONTEXT_TOKENS, DYN_*: cluster.py)

The prompt says which scenario it is and how many turns went before, so the engine keeps no state.
As a real engine would, it masks: a turn that the request's grammar does not allow is an error.
"""

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from dynamo.common.backend import EngineConfig, LLMEngine, LlmRegistration, WorkerConfig
from dynamo.common.backend.run import run
from dynamo.common.constants import DisaggregationMode
from dynamo.llm.exceptions import InvalidArgument
from tokenizers import Tokenizer

from benches.toolcall.masks import Masks
from benches.toolcall.transcript import Transcripts
from toolcall.formats.detect import detect

BLOCK_TOKENS = 32
MOST_TOKENS_A_CHUNK = 4
"""Chunks of 1, 2, 3, 4, 1, ... tokens, as speculative decoding gives them."""


class ReplayEngine(LLMEngine):  # type: ignore[misc]  # Dynamo's classes carry no types here
    """Answers with the next turn of the transcript that the prompt belongs to."""

    def __init__(self, model_dir: Path) -> None:
        tool_format = detect((model_dir / "chat_template.jinja").read_text())
        assert tool_format is not None, f"{model_dir} has no tool format"
        self._model_dir = model_dir
        self._format = tool_format
        self._tokenizer: Any = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        self._transcripts = Transcripts()
        self._masks = Masks(model_dir)

    @classmethod
    async def from_args(cls, argv: list[str] | None = None) -> Any:
        """Not used: `build` makes the engine."""
        raise NotImplementedError(str(argv))

    async def start(self, worker_id: int) -> EngineConfig:  # noqa: ARG002
        """Nothing to load."""
        return EngineConfig(
            model=str(self._model_dir),
            served_model_name=os.environ["ROUTER_MODEL_NAME"],
            llm=LlmRegistration(
                context_length=int(os.environ["ROUTER_CONTEXT_TOKENS"]),
                kv_cache_block_size=BLOCK_TOKENS,
                total_kv_blocks=4096,
            ),
        )

    async def generate(
        self,
        request: dict[str, Any],
        context: Any,  # noqa: ARG002
    ) -> AsyncIterator[dict[str, Any]]:
        """Yields the turn in uneven chunks, its end token last."""
        prompt = list(request["token_ids"])
        answer = self._answer(prompt)
        guided = (request.get("sampling_options") or {}).get("guided_decoding") or {}
        if grammar := guided.get("grammar"):
            refused = self._masks.first_refused(grammar, answer)
            if refused is not None:
                shown = self._tokenizer.decode(answer[: refused + 1], skip_special_tokens=False)
                raise InvalidArgument(f"the grammar refuses the last token of {shown!r}")
        at = chunks = 0
        while at < len(answer):
            size = 1 + chunks % MOST_TOKENS_A_CHUNK
            chunk: dict[str, Any] = {"token_ids": answer[at : at + size], "index": 0}
            at, chunks = at + size, chunks + 1
            if at >= len(answer):
                chunk["finish_reason"] = "stop"
                chunk["completion_usage"] = {
                    "prompt_tokens": len(prompt),
                    "completion_tokens": len(answer),
                    "total_tokens": len(prompt) + len(answer),
                }
            yield chunk

    async def abort(self, context: Any) -> None:
        """Every answer is over at once."""

    async def cleanup(self) -> None:
        """Nothing is held."""

    def _answer(self, prompt: Sequence[int]) -> list[int]:
        user, assistant = self._id("<|user|>"), self._id("<|assistant|>")
        roles = {user, assistant, self._id("<|system|>"), self._id("<|observation|>")}
        start = prompt.index(user) + 1
        end = next(at for at in range(start, len(prompt)) if prompt[at] in roles)
        # The template writes a line break behind the role.
        message = self._tokenizer.decode(prompt[start:end])[1:]
        so_far = sum(token == assistant for token in prompt) - 1
        turn = self._transcripts.turn(message, so_far)
        written = turn.written(self._format)
        answer: list[int] = self._tokenizer.encode(written, add_special_tokens=False).ids
        return [*answer, self._id("<|observation|>") if turn.calls else user]

    def _id(self, token: str) -> int:
        return int(self._tokenizer.token_to_id(token))


async def build(argv: list[str] | None = None) -> tuple[ReplayEngine, Any]:  # noqa: ARG001
    """The engine and its place: a decode worker."""
    model_dir = Path(os.environ["ROUTER_MODEL_DIR"])
    config = WorkerConfig(
        namespace=os.environ["DYN_NAMESPACE"],
        component="backend",
        endpoint="generate",
        model_name=str(model_dir),
        served_model_name=os.environ["ROUTER_MODEL_NAME"],
        discovery_backend="file",
        request_plane="tcp",
        event_plane="nats",
        enable_kv_routing=False,
        disaggregation_mode=DisaggregationMode.DECODE,
    )
    return ReplayEngine(model_dir), config


if __name__ == "__main__":
    run(ReplayEngine, engine_factory=build)
