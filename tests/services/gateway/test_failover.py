"""Before its first byte a request may move to another upstream; after it, never."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from millrace.v1 import usage_pb2
from tests.fixtures.wait import ConditionNotMet, until
from tests.services.gateway.scripted_upstream import Script, ScriptedUpstream
from tests.services.gateway.world import Gateway, Key, World, chat

pytestmark = pytest.mark.fault


@pytest.fixture
async def pair(world: World) -> AsyncIterator[tuple[ScriptedUpstream, ScriptedUpstream]]:
    """Two upstreams of the model `pair`."""
    async with world.attached("pair") as one, world.attached("pair") as other:
        yield one, other


async def until_routed(gateway: Gateway, key: Key, model: str) -> None:
    """Returns when this gateway knows the model."""
    async with gateway.client(key) as http:

        async def is_known() -> bool:
            return (await http.get(f"/v1/models/{model}")).status_code == 200

        await until(is_known, what=f"{model} is routed")


async def first_choice(
    gateway: Gateway, key: Key, pair: tuple[ScriptedUpstream, ScriptedUpstream]
) -> ScriptedUpstream:
    """The upstream that an idle gateway prefers."""
    await until_routed(gateway, key, "pair")
    async with gateway.client(key) as http:
        response = await http.post("/v1/chat/completions", json=chat(model="pair"))
    return next(upstream for upstream in pair if upstream.of(response.headers["x-request-id"]))


async def assert_the_other_answers(
    gateway: Gateway,
    key: Key,
    pair: tuple[ScriptedUpstream, ScriptedUpstream],
    failure: str,
    *,
    is_stream: bool = False,
) -> str:
    """The preferred upstream fails a request and the other one answers it; returns its id."""
    failing = await first_choice(gateway, key, pair)
    failing.always = Script.read(failure)

    async with gateway.client(key) as http:
        response = await http.post(
            "/v1/chat/completions", json=chat(model="pair", stream=is_stream)
        )

    assert response.status_code == 200, response.text
    request_id = response.headers["x-request-id"]
    assert [len(upstream.of(request_id)) for upstream in pair] == [1, 1]
    return str(request_id)


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("failure", ["die_after=0", "status=503", "status=502"])
async def test_another_upstream_answers_for_a_failing_one(
    world: World,
    gateway: Gateway,
    key: Key,
    pair: tuple[ScriptedUpstream, ScriptedUpstream],
    failure: str,
    is_stream: bool,
) -> None:
    await world.set_price("pair")

    request_id = await assert_the_other_answers(gateway, key, pair, failure, is_stream=is_stream)

    event = await world.the_event(request_id)
    assert event.outcome == usage_pb2.REQUEST_OUTCOME_COMPLETED
    assert (event.completion_tokens, event.is_exact) == (5, True)


async def test_the_failover_check_can_fail(
    world: World, key: Key, pair: tuple[ScriptedUpstream, ScriptedUpstream]
) -> None:
    with world.gateway(mutant="one_attempt") as gateway:
        await gateway.until_ready()

        with pytest.raises(AssertionError, match="no_capacity"):
            await assert_the_other_answers(gateway, key, pair, "status=503")


async def test_after_the_first_byte_a_request_never_moves(
    gateway: Gateway, key: Key, pair: tuple[ScriptedUpstream, ScriptedUpstream]
) -> None:
    await until_routed(gateway, key, "pair")

    async with gateway.client(key) as http:
        response = await http.post(
            "/v1/chat/completions", json=chat("gap_ms=5 die_after=2", model="pair", stream=True)
        )

    assert b'"error"' in response.content
    request_id = response.headers["x-request-id"]
    assert len(pair[0].of(request_id)) + len(pair[1].of(request_id)) == 1


async def test_a_request_waits_for_an_upstream_that_restarts(
    world: World, gateway: Gateway, key: Key
) -> None:
    port = world.free_port()
    async with world.attached("restarting", port=port):
        await until_routed(gateway, key, "restarting")

    async with gateway.client(key) as http:
        asking = asyncio.create_task(
            http.post("/v1/chat/completions", json=chat(model="restarting", stream=True))
        )
        with pytest.raises(ConditionNotMet):
            await until(asking.done, within_s=1, what="an answer without an upstream")
        async with world.attached("restarting", port=port) as back:
            response = await asking

    assert response.status_code == 200
    assert response.content.endswith(b"data: [DONE]\n\n")
    assert len(back.seen) == 1


async def test_a_client_that_leaves_while_waiting_leaves_no_event(
    world: World, gateway: Gateway, key: Key
) -> None:
    async with world.attached("leaving"):
        await until_routed(gateway, key, "leaving")

    async with gateway.client(key, timeout=1) as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.post("/v1/chat/completions", json=chat(model="leaving"))

    gateway.process.until_logged('"outcome": "released"')


async def test_no_capacity_is_said_after_three_attempts(
    world: World, gateway: Gateway, key: Key
) -> None:
    async with world.attached("full") as upstream:
        await until_routed(gateway, key, "full")
        upstream.always = Script.read("status=503")

        async with gateway.client(key) as http:
            response = await http.post("/v1/chat/completions", json=chat(model="full"))

    assert response.status_code == 503
    assert response.json()["error"]["code"] == "no_capacity"
    assert response.json()["error"]["type"] == "server_error"
    assert int(response.headers["retry-after"]) > 0
    assert len(upstream.of(response.headers["x-request-id"])) == 3


async def test_the_window_ends_when_no_upstream_comes_back(world: World, key: Key) -> None:
    with world.gateway(env={"GATEWAY_FAILOVER_WINDOW_S": "0.5"}) as gateway:
        await gateway.until_ready()
        async with world.attached("gone"):
            await until_routed(gateway, key, "gone")
        async with gateway.client(key) as http:
            response = await http.post("/v1/chat/completions", json=chat(model="gone"))

    assert response.status_code == 503
    assert response.json()["error"]["code"] == "no_capacity"


async def test_a_reserved_pool_is_for_its_team_alone(
    world: World, gateway: Gateway, key: Key
) -> None:
    other = await world.new_key()
    async with world.attached("reserved-model", pool=f"reserved:{key.team_id}"):
        await until_routed(gateway, key, "reserved-model")

        async with gateway.client(other) as http:

            async def is_known() -> bool:
                return (await http.get("/v1/models")).status_code == 200

            await until(is_known)
            response = await http.post("/v1/chat/completions", json=chat(model="reserved-model"))

    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
