"""A completion through the gateway: the SDK's view, and the bytes."""

import asyncio
from typing import Any

import openai
import pytest

from millrace.v1 import usage_pb2
from tests.services.gateway.scripted_upstream import (
    CACHED_TOKENS,
    PROMPT_TOKENS,
    ScriptedUpstream,
    word,
)
from tests.services.gateway.world import Gateway, Key, World, chat

TEXT = "".join(word(number) for number in range(5))
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize("prefix", ["/v1", "/api/v1"])
async def test_the_async_sdk_gets_whole_and_streamed_answers(
    gateway: Gateway, key: Key, prefix: str
) -> None:
    async with openai.AsyncOpenAI(base_url=gateway.url + prefix, api_key=key.text) as client:
        whole = await client.chat.completions.create(**chat())
        parts = await client.chat.completions.create(
            **chat(), stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in parts]
        models = [model.id async for model in client.models.list()]

    assert whole.choices[0].message.content == TEXT
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 5
    streamed = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert streamed == TEXT
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == PROMPT_TOKENS
    assert "scripted" in models


async def test_the_sync_sdk_gets_whole_and_streamed_answers(gateway: Gateway, key: Key) -> None:
    def use() -> tuple[str | None, str, str, str]:
        with openai.OpenAI(base_url=gateway.url + "/v1", api_key=key.text) as client:
            whole = client.chat.completions.create(**chat()).choices[0].message.content
            stream = client.chat.completions.create(**chat(), stream=True)
            streamed = "".join(c.choices[0].delta.content or "" for c in stream)
            text = client.completions.create(model="scripted", prompt="chunks=5").choices[0].text
            parts = client.completions.create(model="scripted", prompt="chunks=5", stream=True)
            return whole, streamed, text, "".join(part.choices[0].text for part in parts)

    assert await asyncio.to_thread(use) == (TEXT, TEXT, TEXT, TEXT)


@pytest.mark.parametrize("form", ["", "crlf=1", "split=1", "crlf=1 split=1", "gap_ms=2"])
async def test_a_stream_is_byte_for_byte_the_upstreams_when_usage_was_asked_for(
    gateway: Gateway, key: Key, upstream: ScriptedUpstream, form: str
) -> None:
    body = chat(f"chunks=5 {form}", stream=True, stream_options={"include_usage": True})

    async with gateway.client(key) as http:
        response = await http.post("/v1/chat/completions", json=body)

    assert response.status_code == 200
    assert response.content == upstream.of(response.headers["x-request-id"])[0].sent


@pytest.mark.parametrize("form", ["", "crlf=1", "split=1"])
@pytest.mark.parametrize("options", [None, {"include_usage": False}])
async def test_the_usage_event_is_taken_out_when_nobody_asked_for_it(
    gateway: Gateway, key: Key, upstream: ScriptedUpstream, form: str, options: Any
) -> None:
    body = chat(f"chunks=5 {form}", stream=True, stream_options=options)

    async with gateway.client(key) as http:
        response = await http.post("/v1/chat/completions", json=body)

    seen = upstream.of(response.headers["x-request-id"])[0]
    assert seen.body["stream_options"]["include_usage"] is True
    end = b"\r\n\r\n" if "crlf" in form else b"\n\n"
    events = seen.sent.split(end)
    kept = [event for event in events if b'"prompt_tokens"' not in event]
    assert len(kept) == len(events) - 1
    assert response.content == end.join(kept)


async def test_a_whole_answer_is_byte_for_byte_the_upstreams(
    gateway: Gateway, key: Key, upstream: ScriptedUpstream
) -> None:
    async with gateway.client(key) as http:
        response = await http.post("/v1/chat/completions", json=chat())

    assert response.content == upstream.of(response.headers["x-request-id"])[0].sent


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("endpoint", ["chat/completions", "completions"])
async def test_a_completed_request_leaves_one_exact_event(
    world: World,
    gateway: Gateway,
    key: Key,
    upstream: ScriptedUpstream,
    endpoint: str,
    is_stream: bool,
) -> None:
    ask = (
        {"model": "scripted", "prompt": "chunks=7"}
        if endpoint == "completions"
        else chat("chunks=7")
    )

    async with gateway.client(key) as http:
        response = await http.post(f"/v1/{endpoint}", json={**ask, "stream": is_stream})

    event = await world.the_event(response.headers["x-request-id"])
    assert event.outcome == usage_pb2.REQUEST_OUTCOME_COMPLETED
    assert (event.prompt_tokens, event.cached_tokens) == (PROMPT_TOKENS, CACHED_TOKENS)
    assert event.completion_tokens == 7
    assert event.is_exact
    assert event.is_stream is is_stream
    assert event.endpoint == endpoint.replace("/", ".")
    assert (event.team_id, event.key_id) == (key.team_id, key.key_id)
    assert (event.cluster, event.pool, event.model) == ("local", "serverless", "scripted")
