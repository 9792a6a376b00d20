"""Every forwarded request ends for its client in one clear way, and for billing in one event."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from millrace.v1 import usage_pb2
from tests.fixtures.wait import until
from tests.services.gateway.scripted_upstream import CACHED_TOKENS, PROMPT_TOKENS, ScriptedUpstream
from tests.services.gateway.world import Gateway, Key, World, chat

pytestmark = pytest.mark.fault

WITH_USAGE = {"include_usage": True}


async def leave_mid_stream(
    gateway: Gateway, key: Key, script: str, chunks: int, upstream: ScriptedUpstream
) -> str:
    """Reads this many chunks of a stream, closes the connection, and returns the request's id."""
    async with (
        gateway.client(key) as http,
        http.stream("POST", "/v1/chat/completions", json=chat(script, stream=True)) as response,
    ):
        request_id = response.headers["x-request-id"]
        received = b""
        async for data in response.aiter_raw():
            received += data
            if received.count(b"\n\n") >= chunks:
                break
    return request_id


async def leave_before_the_answer(
    gateway: Gateway, key: Key, script: str, upstream: ScriptedUpstream, is_stream: bool
) -> str:
    """Closes the connection while the upstream works on the answer's head."""
    before = len(upstream.seen)
    async with gateway.client(key) as http:
        asking = asyncio.create_task(
            http.post("/v1/chat/completions", json=chat(script, stream=is_stream))
        )
        await until(lambda: len(upstream.seen) > before)
        asking.cancel()
        await asyncio.wait([asking])
    return upstream.last().request_id


async def test_a_client_that_leaves_mid_stream_stops_the_upstream_and_pays_exactly(
    world: World, gateway: Gateway, key: Key, upstream: ScriptedUpstream
) -> None:
    request_id = await leave_mid_stream(gateway, key, "chunks=200 hold_after=20", 20, upstream)

    await until(upstream.of(request_id)[0].cancelled.is_set, within_s=2)
    event = await world.the_event(request_id)
    assert event.outcome == usage_pb2.REQUEST_OUTCOME_CLIENT_DISCONNECTED
    assert event.is_exact
    assert (event.prompt_tokens, event.cached_tokens) == (PROMPT_TOKENS, CACHED_TOKENS)
    assert event.completion_tokens == 20


async def test_a_client_that_leaves_before_a_whole_answer_pays_what_was_computed(
    world: World, gateway: Gateway, key: Key, upstream: ScriptedUpstream
) -> None:
    request_id = await leave_before_the_answer(
        gateway, key, "chunks=9 hold_after=3", upstream, False
    )

    event = await world.the_event(request_id)
    assert event.outcome == usage_pb2.REQUEST_OUTCOME_CLIENT_DISCONNECTED
    assert (event.completion_tokens, event.is_exact) == (3, True)


async def test_an_upstream_without_cancel_is_left_and_the_count_is_a_lower_bound(
    world: World, gateway: Gateway, key: Key, upstream: ScriptedUpstream
) -> None:
    script = "chunks=50 hold_after=6 cancel=0"

    request_id = await leave_mid_stream(gateway, key, script, 6, upstream)

    await until(lambda: upstream.of(request_id)[0].is_over, within_s=2, what="connection closed")
    event = await world.the_event(request_id)
    assert event.outcome == usage_pb2.REQUEST_OUTCOME_CLIENT_DISCONNECTED
    assert (event.prompt_tokens, event.completion_tokens, event.is_exact) == (0, 6, False)


async def test_an_upstream_that_ignores_a_cancel_is_not_read_for_ever(
    world: World, key: Key, upstream: ScriptedUpstream
) -> None:
    with world.gateway(env={"GATEWAY_CANCEL_WAIT_S": "0.3"}) as gateway:
        await gateway.until_ready()
        request_id = await leave_mid_stream(
            gateway, key, "chunks=50 hold_after=4 deaf=1", 4, upstream
        )
        event = await world.the_event(request_id)

    assert event.outcome == usage_pb2.REQUEST_OUTCOME_CLIENT_DISCONNECTED
    assert (event.completion_tokens, event.is_exact) == (4, False)


@pytest.mark.parametrize("is_stream", [True, False])
async def test_clients_that_leave_at_random_moments_each_leave_one_event(
    world: World, gateway: Gateway, key: Key, upstream: ScriptedUpstream, is_stream: bool
) -> None:
    async def ask_and_leave(after_ms: int) -> None:
        async with gateway.client(key) as http:
            body = chat("chunks=20 gap_ms=4", stream=is_stream)
            asking = asyncio.create_task(http.post("/v1/chat/completions", json=body))
            await asyncio.wait([asking], timeout=after_ms / 1000)
            asking.cancel()
            await asyncio.wait([asking])

    before = len(upstream.seen)

    await asyncio.gather(*(ask_and_leave(5 * number) for number in range(30)))

    await until(lambda: all(seen.is_over for seen in upstream.seen[before:]))
    for seen in upstream.seen[before:]:
        event = await world.the_event(seen.request_id)
        assert (event.completion_tokens, event.is_exact) == (seen.sent_chunks, True)


@pytest.mark.parametrize("chunks", [1, 4])
async def test_an_upstream_that_dies_mid_stream_ends_in_one_error_event(
    world: World, gateway: Gateway, key: Key, upstream: ScriptedUpstream, chunks: int
) -> None:
    body = chat(f"chunks=9 gap_ms=5 die_after={chunks}", stream=True)

    async with gateway.client(key) as http:
        response = await http.post("/v1/chat/completions", json=body)

    assert response.status_code == 200
    sent = upstream.of(response.headers["x-request-id"])[0].sent
    assert response.content.startswith(sent)
    assert one_error(response.content[len(sent) :])["code"] == "upstream_failed"
    event = await world.the_event(response.headers["x-request-id"])
    assert event.outcome == usage_pb2.REQUEST_OUTCOME_UPSTREAM_FAILED
    assert (event.completion_tokens, event.is_exact) == (chunks, False)


async def test_an_upstreams_own_error_event_is_the_last_one(
    world: World, gateway: Gateway, key: Key, upstream: ScriptedUpstream
) -> None:
    async with gateway.client(key) as http:
        response = await http.post(
            "/v1/chat/completions", json=chat("chunks=9 error_after=3", stream=True)
        )

    assert response.content == upstream.of(response.headers["x-request-id"])[0].sent
    assert response.content.count(b'"error"') == 1
    event = await world.the_event(response.headers["x-request-id"])
    assert event.outcome == usage_pb2.REQUEST_OUTCOME_UPSTREAM_FAILED
    assert (event.completion_tokens, event.is_exact) == (3, False)


async def test_a_stream_without_done_counts_as_failed(
    world: World, gateway: Gateway, key: Key
) -> None:
    body = chat("chunks=5 done=0", stream=True, stream_options=WITH_USAGE)

    async with gateway.client(key) as http:
        response = await http.post("/v1/chat/completions", json=body)

    assert b"[DONE]" not in response.content
    assert one_error(response.content.split(b"\n\n")[-2] + b"\n\n")["code"] == "upstream_failed"
    event = await world.the_event(response.headers["x-request-id"])
    assert event.outcome == usage_pb2.REQUEST_OUTCOME_UPSTREAM_FAILED
    assert (event.completion_tokens, event.is_exact) == (5, True)


@pytest.mark.parametrize(("is_stream", "least"), [(True, 5), (False, 1)])
async def test_an_answer_without_usage_is_metered_by_what_is_certain(
    world: World, gateway: Gateway, key: Key, is_stream: bool, least: int
) -> None:
    async with gateway.client(key) as http:
        response = await http.post(
            "/v1/chat/completions", json=chat("chunks=5 usage=0", stream=is_stream)
        )

    event = await world.the_event(response.headers["x-request-id"])
    assert event.outcome == usage_pb2.REQUEST_OUTCOME_COMPLETED
    assert (event.completion_tokens, event.is_exact) == (least, False)


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("status", [400, 404, 408, 409, 413, 422, 429, 500, 504])
async def test_an_upstreams_error_passes_unchanged(
    world: World,
    gateway: Gateway,
    key: Key,
    upstream: ScriptedUpstream,
    status: int,
    is_stream: bool,
) -> None:
    body = chat(f"status={status} retry_after=7", stream=is_stream)

    async with gateway.client(key) as http:
        response = await http.post("/v1/chat/completions", json=body)

    assert response.status_code == status
    assert response.content == upstream.of(response.headers["x-request-id"])[0].sent
    assert response.headers["retry-after"] == "7"
    assert response.headers["content-type"].startswith("application/json")
    if status >= 500:
        event = await world.the_event(response.headers["x-request-id"])
        assert event.outcome == usage_pb2.REQUEST_OUTCOME_UPSTREAM_FAILED
        assert (event.completion_tokens, event.is_exact) == (0, False)


@pytest.mark.parametrize("script", ["status=401", "status=403", "status=302", "status=500 html=1"])
async def test_an_upstreams_answer_that_is_not_for_clients_becomes_a_502(
    gateway: Gateway, key: Key, script: str
) -> None:
    async with gateway.client(key) as http:
        response = await http.post("/v1/chat/completions", json=chat(script))

    assert response.status_code == 502
    assert response.json()["error"]["code"] == "upstream_failed"
    assert b"scripted" not in response.content


async def test_a_refused_request_leaves_no_event(world: World, gateway: Gateway, key: Key) -> None:
    async with gateway.client(key) as http:
        refused = await http.post("/v1/chat/completions", json=chat("status=400"))
        # Events are published in order: once a later one is there, an earlier one would be too.
        served = await http.post("/v1/chat/completions", json=chat())

    await world.the_event(served.headers["x-request-id"])
    assert await world.stream_events(refused.headers["x-request-id"]) == []


@pytest.fixture(scope="module")
async def hasty_gateway(world: World, upstream: ScriptedUpstream) -> AsyncIterator[Gateway]:
    """A gateway that waits for little."""
    env = {"GATEWAY_UPSTREAM_SILENCE_S": "0.4", "GATEWAY_REQUEST_TIMEOUT_S": "1.5"}
    with world.gateway(env=env) as gateway:
        await gateway.until_ready()
        yield gateway


@pytest.mark.parametrize(
    ("stream", "said"), [(True, "did not begin to answer"), (False, "longer than 1.5 seconds")]
)
async def test_an_upstream_that_never_answers_becomes_a_504(
    world: World,
    hasty_gateway: Gateway,
    key: Key,
    upstream: ScriptedUpstream,
    stream: bool,
    said: str,
) -> None:
    async with hasty_gateway.client(key) as http:
        response = await http.post("/v1/chat/completions", json=chat("silent=1", stream=stream))

    assert response.status_code == 504
    error = response.json()["error"]
    assert error["code"] == "upstream_timeout"
    assert said in error["message"]
    request_id = response.headers["x-request-id"]
    await until(lambda: request_id in upstream.cancels, what="the upstream was told to stop")
    event = await world.the_event(request_id)
    assert event.outcome == usage_pb2.REQUEST_OUTCOME_UPSTREAM_FAILED


async def test_a_whole_answer_is_not_silence(hasty_gateway: Gateway, key: Key) -> None:
    """Its upstream says nothing for twice as long as a stream's may, and then all of it."""
    async with hasty_gateway.client(key) as http:
        response = await http.post("/v1/chat/completions", json=chat("chunks=2 gap_ms=400"))

    assert response.status_code == 200


@pytest.mark.parametrize(
    ("script", "is_exact"), [("chunks=9 hold_after=3", False), ("chunks=500 gap_ms=10", True)]
)
async def test_a_stream_that_stalls_or_never_ends_is_ended_with_an_error_event(
    world: World,
    hasty_gateway: Gateway,
    key: Key,
    upstream: ScriptedUpstream,
    script: str,
    is_exact: bool,
) -> None:
    async with hasty_gateway.client(key) as http:
        response = await http.post("/v1/chat/completions", json=chat(script, stream=True))

    assert response.status_code == 200
    error = one_error(response.content.split(b"\n\n")[-2] + b"\n\n")
    assert error["code"] == "upstream_timeout"
    request_id = response.headers["x-request-id"]
    await until(lambda: request_id in upstream.cancels, what="the upstream was told to stop")
    event = await world.the_event(request_id)
    assert event.outcome == usage_pb2.REQUEST_OUTCOME_UPSTREAM_FAILED
    assert event.is_exact is is_exact
    assert event.completion_tokens == upstream.of(request_id)[0].sent_chunks


async def test_chunks_arrive_as_they_are_made(gateway: Gateway, key: Key) -> None:
    reads = 0

    async with (
        gateway.client(key) as http,
        http.stream(
            "POST", "/v1/chat/completions", json=chat("chunks=40 gap_ms=10", stream=True)
        ) as response,
    ):
        async for _ in response.aiter_raw():
            reads += 1

    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    # Every chunk by itself on a quiet machine; a busy one may join a few.
    assert reads >= 30


def one_error(tail: bytes) -> dict[str, Any]:
    """The error of a stream's end that is one error event and nothing else."""
    assert tail.startswith(b"data: "), tail
    assert tail.endswith(b"\n\n"), tail
    assert tail.count(b"\n\n") == 1, tail
    response = httpx.Response(200, content=tail.removeprefix(b"data: "))
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error
