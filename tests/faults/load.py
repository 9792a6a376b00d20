"""Light, steady load over the public API, and an account of every answer that came back whole."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import openai

CLIENTS = 2
PAUSE_S = 0.1


@dataclass
class Account:
    """What the clients saw."""

    completed: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Request id to prompt, cached and completion tokens."""
    failed: list[str] = field(default_factory=list)

    def note(self, request_id: str, usage: openai.types.CompletionUsage) -> None:
        """Adds one whole answer."""
        assert request_id not in self.completed
        assert usage.prompt_tokens_details is not None
        self.completed[request_id] = (
            usage.prompt_tokens,
            usage.prompt_tokens_details.cached_tokens or 0,
            usage.completion_tokens,
        )


async def ask(client: openai.AsyncOpenAI, account: Account, number: int) -> None:
    """One request, every second one streamed. Raises openai.OpenAIError when it fails."""
    body = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": f"Say the number {number}."}],
        "max_tokens": 6,
        "temperature": 0,
    }
    if number % 2:
        raw = await client.chat.completions.with_raw_response.create(**body)
        answer = raw.parse()
        account.note(raw.headers["x-request-id"], answer.usage)
        return
    raw = await client.chat.completions.with_raw_response.create(
        **body, stream=True, stream_options={"include_usage": True}
    )
    usage, finish = None, None
    async for chunk in raw.parse():
        usage = chunk.usage or usage
        finish = (chunk.choices and chunk.choices[0].finish_reason) or finish
    if usage is None or finish is None:
        raise openai.APIError("the stream just stopped", request=None, body=None)
    account.note(raw.headers["x-request-id"], usage)


@contextlib.asynccontextmanager
async def light_load(base_url: str, api_key: str) -> AsyncIterator[Account]:
    """Runs the clients while the block runs; their failures are noted, not raised."""
    account, numbers, is_over = Account(), itertools.count(), asyncio.Event()

    async def one_client(client: openai.AsyncOpenAI) -> None:
        while not is_over.is_set():
            try:
                await ask(client, account, next(numbers))
            except openai.OpenAIError as error:
                account.failed.append(repr(error))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(is_over.wait(), PAUSE_S)

    async with openai.AsyncOpenAI(
        base_url=base_url, api_key=api_key, max_retries=0, timeout=40
    ) as client:
        tasks = [asyncio.create_task(one_client(client)) for _ in range(CLIENTS)]
        try:
            yield account
        finally:
            is_over.set()
            await asyncio.gather(*tasks)
