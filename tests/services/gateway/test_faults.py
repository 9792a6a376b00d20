"""Processes die, usage does not: nothing is lost or counted twice, and what can be served is."""

import asyncio
import time
from pathlib import Path

import httpx
import pytest

from millrace.v1 import usage_pb2
from tests.fixtures.wait import until
from tests.services.gateway.scripted_upstream import PROMPT_TOKENS, ScriptedUpstream
from tests.services.gateway.world import Gateway, Key, World, ask, chat

pytestmark = pytest.mark.fault


async def kill_at_the_last_byte(gateway: Gateway, key: Key, is_stream: bool) -> str:
    """Kills the gateway at the moment the client has the whole answer; returns the request's id."""
    received = b""
    async with (
        gateway.client(key) as http,
        http.stream("POST", "/v1/chat/completions", json=chat(stream=is_stream)) as response,
    ):
        length = int(response.headers.get("content-length", 0))
        async for data in response.aiter_raw():
            received += data
            if received.endswith(b"[DONE]\n\n") or len(received) == length:
                gateway.process.kill()
                return str(response.headers["x-request-id"])
    raise AssertionError(f"the answer ended without its last bytes: {received!r}")


async def assert_exact_after_a_kill_at_the_end(
    world: World, key: Key, spool_dir: Path, *, is_stream: bool, mutant: str | None = None
) -> None:
    """What was served in full is billed in full, although the gateway died right then."""
    with world.gateway(spool_dir=spool_dir, mutant=mutant) as gateway:
        await gateway.until_ready()
        request_id = await kill_at_the_last_byte(gateway, key, is_stream)
    with world.gateway(spool_dir=spool_dir) as successor:
        await successor.until_ready()
        event = await world.the_event(request_id)

    assert event.outcome == usage_pb2.REQUEST_OUTCOME_COMPLETED
    assert (event.prompt_tokens, event.completion_tokens) == (PROMPT_TOKENS, 5)
    assert event.is_exact


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_kill_right_after_the_end_keeps_the_exact_usage(
    world: World, key: Key, upstream: ScriptedUpstream, spool_dir: Path, is_stream: bool
) -> None:
    await assert_exact_after_a_kill_at_the_end(world, key, spool_dir, is_stream=is_stream)


@pytest.mark.parametrize("is_stream", [True, False])
async def test_the_check_of_a_kill_right_after_the_end_can_fail(
    world: World, key: Key, upstream: ScriptedUpstream, spool_dir: Path, is_stream: bool
) -> None:
    with pytest.raises(AssertionError, match="assert 4 == 1"):
        await assert_exact_after_a_kill_at_the_end(
            world, key, spool_dir, is_stream=is_stream, mutant="usage_after_response"
        )


async def test_a_kill_mid_stream_bills_what_the_client_was_sent(
    world: World, key: Key, upstream: ScriptedUpstream, spool_dir: Path
) -> None:
    received = b""
    with world.gateway(spool_dir=spool_dir) as gateway:
        await gateway.until_ready()
        async with (
            gateway.client(key) as http,
            http.stream(
                "POST",
                "/v1/chat/completions",
                json=chat("chunks=50 hold_after=9 tells_prompt=37", stream=True),
            ) as response,
        ):
            assert "x-millrace-prompt-tokens" not in response.headers
            request_id = response.headers["x-request-id"]
            async for data in response.aiter_raw():
                received += data
                if received.count(b"\n\n") == 9:
                    gateway.process.kill()
                    break
    with world.gateway(spool_dir=spool_dir) as successor:
        await successor.until_ready()
        event = await world.the_event(request_id)

    assert event.outcome == usage_pb2.REQUEST_OUTCOME_GATEWAY_LOST
    assert (event.prompt_tokens, event.completion_tokens, event.is_exact) == (37, 9, False)


async def test_kills_under_load_lose_and_double_nothing(
    world: World, key: Key, upstream: ScriptedUpstream, spool_dir: Path
) -> None:
    """Three gateways in turn on one spool, each killed in the middle of twenty requests."""
    before = len(upstream.seen)
    finished: dict[str, int] = {}

    async def load(gateway: Gateway, chunks: int) -> None:
        body = chat(f"chunks={chunks} gap_ms=3", stream=chunks % 2 == 0)
        async with gateway.client(key) as http:
            try:
                response = await http.post("/v1/chat/completions", json=body)
            except httpx.TransportError:
                return
        finished[response.headers["x-request-id"]] = chunks

    for round_number in range(1, 4):
        with world.gateway(spool_dir=spool_dir) as gateway:
            await gateway.until_ready()
            loads = [asyncio.create_task(load(gateway, 2 * n + 1 + n % 2)) for n in range(20)]
            await until(lambda: len(finished) >= 6 * round_number, what="some requests ended")  # noqa: B023
            gateway.process.kill()
            await asyncio.wait(loads)
    with world.gateway(spool_dir=spool_dir) as successor:
        await successor.until_ready()
        forwarded = {seen.request_id for seen in upstream.seen[before:]}
        events = {request_id: await world.the_event(request_id) for request_id in forwarded}

    assert len(forwarded) > len(finished) > 0, "no request was cut off: nothing was shown"
    for request_id, chunks in finished.items():
        assert (events[request_id].completion_tokens, events[request_id].is_exact) == (chunks, True)
    lost = [event for event in events.values() if event.request_id not in finished]
    for event in lost:
        assert event.outcome in (
            usage_pb2.REQUEST_OUTCOME_GATEWAY_LOST,
            usage_pb2.REQUEST_OUTCOME_COMPLETED,  # on disk, and its last bytes died in the socket
        )


async def test_without_nats_requests_are_served_and_their_usage_arrives_later(
    world: World, key: Key, gateway: Gateway
) -> None:
    await ask(gateway, key)

    world.nats.kill()
    try:
        requests = [await ask(gateway, key, is_stream=number % 2 == 0) for number in range(20)]
    finally:
        world.nats.restart()

    for request_id in requests:
        event = await world.the_event(request_id)
        assert event.outcome == usage_pb2.REQUEST_OUTCOME_COMPLETED
        assert event.is_exact


async def test_a_kill_without_nats_loses_nothing(
    world: World, key: Key, upstream: ScriptedUpstream, spool_dir: Path
) -> None:
    with world.gateway(spool_dir=spool_dir) as gateway:
        await gateway.until_ready()
        world.nats.kill()
        try:
            requests = [await ask(gateway, key) for _ in range(5)]
            gateway.process.until_logged("usage_not_published")
            gateway.process.kill()
            with world.gateway(spool_dir=spool_dir) as successor:
                await successor.until_serving()
                world.nats.restart()
                for request_id in requests:
                    assert (await world.the_event(request_id)).is_exact
        finally:
            world.nats.restart()


async def assert_a_lost_acknowledgement_doubles_nothing(
    world: World, key: Key, spool_dir: Path, *, kills: bool, mutant: str | None = None
) -> None:
    """NATS takes a batch and its acknowledgement does not come: the batch is sent again."""
    with world.gateway(spool_dir=spool_dir, mutant=mutant) as gateway:
        await gateway.until_ready()
        # Published and acknowledged, so that the retried batch holds the next request alone.
        await world.the_event(await ask(gateway, key))
        world.nats.pause()
        try:
            request_id = await ask(gateway, key)
            await until(
                lambda: gateway.process.log().count("usage_not_published") >= 2,
                what="the batch was sent twice without an answer",
            )
        finally:
            if kills:
                gateway.process.kill()
            world.nats.pause_ends()
        if not kills:
            await world.the_event(request_id)
            return
    with world.gateway(spool_dir=spool_dir) as successor:
        await successor.until_ready()
        await world.the_event(request_id)
        later = await ask(successor, key)
        await world.the_event(later)
        await world.the_event(request_id)


@pytest.mark.parametrize("kills", [False, True])
async def test_a_lost_acknowledgement_doubles_nothing(
    world: World, key: Key, upstream: ScriptedUpstream, spool_dir: Path, kills: bool
) -> None:
    await assert_a_lost_acknowledgement_doubles_nothing(world, key, spool_dir, kills=kills)


async def test_the_check_of_a_lost_acknowledgement_can_fail(
    world: World, key: Key, upstream: ScriptedUpstream, spool_dir: Path
) -> None:
    with pytest.raises(AssertionError, match=r"[2-9] events of one request"):
        await assert_a_lost_acknowledgement_doubles_nothing(
            world, key, spool_dir, kills=False, mutant="publish_new_id_on_retry"
        )


async def seconds_until_revoked(world: World, gateway: Gateway) -> float:
    """How long after the revocation's acknowledgement a key still worked."""
    key = await world.new_key()
    async with gateway.client(key) as http:

        async def status() -> int:
            return (await http.get("/v1/models")).status_code

        async def is_served() -> bool:
            return await status() == 200

        async def is_refused() -> bool:
            return await status() == 401

        await until(is_served, within_s=2, what="a new key works")
        await world.admin("DELETE", f"/keys/{key.key_id}")
        revoked_at_s = time.monotonic()
        await until(is_refused, within_s=3, what="a revoked key is refused")
        return time.monotonic() - revoked_at_s


async def test_a_revoked_key_stops_working_within_a_second(world: World, gateway: Gateway) -> None:
    taken_s = [await seconds_until_revoked(world, gateway) for _ in range(3)]

    assert max(taken_s) < 1.0, taken_s


async def test_the_check_of_revocation_can_fail(world: World, upstream: ScriptedUpstream) -> None:
    with world.gateway(mutant="ignore_revocations") as gateway:
        await gateway.until_ready()

        with pytest.raises(AssertionError):
            await seconds_until_revoked(world, gateway)


async def test_without_billing_and_health_the_last_snapshot_serves(
    world: World, key: Key, upstream: ScriptedUpstream
) -> None:
    with world.gateway() as gateway, world.gateway() as other:
        await gateway.until_ready()
        await other.until_ready()
        world.billing.kill()
        world.health.kill()
        try:
            gateway.process.until_logged("watch_broken")
            served = [await ask(gateway, key, is_stream=number % 2 == 0) for number in range(5)]
            with world.gateway() as newcomer:
                async with newcomer.client(key) as http:
                    await until(lambda: "serving" in newcomer.process.log())
                    refused = await http.post("/v1/chat/completions", json=chat())
                    is_ready = await http.get("/readyz")
                    usage = await http.get("/v1/usage")
        finally:
            world.start_billing()
            world.start_health()
            await world.billing.until_ready()
            await world.health.until_ready()
        for request_id in served:
            assert (await world.the_event(request_id)).is_exact
        await seconds_until_revoked(world, gateway)

    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "not_ready"
    assert refused.headers["retry-after"] == "1"
    assert is_ready.status_code == 503
    assert usage.status_code == 503


async def test_one_spool_has_one_owner(
    world: World, upstream: ScriptedUpstream, spool_dir: Path
) -> None:
    with world.gateway(spool_dir=spool_dir) as gateway:
        await gateway.until_ready()
        with world.gateway(spool_dir=spool_dir) as second:
            await until(lambda: second.process.exit_code is not None)

    assert second.process.exit_code == 1
    assert "GATEWAY_SPOOL_DIR" in second.process.log()


async def test_a_full_spool_refuses_and_recovers(
    world: World, key: Key, upstream: ScriptedUpstream
) -> None:
    with world.gateway(env={"GATEWAY_SPOOL_MAX_BYTES": "5000"}) as gateway:
        await gateway.until_ready()
        served = [await ask(gateway, key)]
        world.nats.kill()
        try:
            async with gateway.client(key) as http:
                refused = None
                for _ in range(40):
                    response = await http.post("/v1/chat/completions", json=chat())
                    if response.status_code != 200:
                        refused = response
                        break
                    served.append(response.headers["x-request-id"])
        finally:
            world.nats.restart()
        for request_id in served:
            assert (await world.the_event(request_id)).is_exact
        again = await ask(gateway, key)
        await world.the_event(again)

    assert refused is not None, "the spool never filled"
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "usage_unrecordable"


async def test_a_stop_lets_short_requests_end_and_ends_long_ones_with_an_error(
    world: World, key: Key, upstream: ScriptedUpstream
) -> None:
    with world.gateway() as gateway:
        await gateway.until_ready()
        async with gateway.client(key) as http:
            before = len(upstream.seen)
            bodies = [chat("chunks=50 gap_ms=10", stream=True), chat("chunks=9 hold_after=4")]
            bodies.append({**bodies[1], "stream": True})
            asking = [
                asyncio.create_task(http.post("/v1/chat/completions", json=body)) for body in bodies
            ]
            await until(lambda: len(upstream.seen) == before + 3)
            started_at_s = time.monotonic()
            stopping = asyncio.to_thread(gateway.process.stop)
            exit_code = await stopping
            took_s = time.monotonic() - started_at_s
            short, whole, long = [await task for task in asking]

    assert exit_code == 0
    assert took_s < 5.0
    assert short.content.endswith(b"data: [DONE]\n\n")
    assert whole.status_code == 503
    assert b"[DONE]" not in long.content
    assert b'"not_ready"' in long.content
    # The next start on this spool would publish what the last half second did not; here it did.
    for response, chunks in ((whole, 4), (long, 4)):
        event = await world.the_event(response.headers["x-request-id"])
        assert event.outcome == usage_pb2.REQUEST_OUTCOME_GATEWAY_LOST
        assert (event.completion_tokens, event.is_exact) == (chunks, True)
