"""Bad input gets a clear OpenAI error, reaches no upstream, and leaves no usage."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import orjson
import pytest

from tests.fixtures.wait import until
from tests.services.gateway.scripted_upstream import ScriptedUpstream
from tests.services.gateway.world import Gateway, Key, World, chat

MIB = 1 << 20
USER = {"role": "user", "content": "hi"}
DEEP = (
    b'{"model": "scripted", "messages": [{"role": "user", "content": "hi"}], "tools": '
    + b"[" * 500
    + b"]" * 500
    + b"}"
)


def assert_error(response: httpx.Response, status: int, code: str | None, param: str | None) -> str:
    """The message of a reply in OpenAI's error shape."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    assert set(response.json()) == {"error"}
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (code, param)
    assert isinstance(error["message"], str)
    return str(error["message"])


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({}, "didn't provide"),
        ({"authorization": "Bearer mr-00000000-" + "x" * 43}, "Incorrect API key"),
        ({"authorization": "Bearer " + "x" * 10_000}, "one API key"),
        ({"authorization": "Bearer"}, "one API key"),
        ({"authorization": "Basic abc"}, "one API key"),
        ({"authorization": b"Bearer \xff\xfe"}, "Incorrect API key"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/v1/completions"])
async def test_a_wrong_key_is_refused(
    gateway: Gateway, headers: dict[str, Any], says: str, path: str
) -> None:
    async with gateway.client() as http:
        response = await http.post(path, json=chat(), headers=headers)

    assert says in assert_error(response, 401, "invalid_api_key", None)
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/scripted", "/v1/usage"])
async def test_reading_needs_a_key_too(gateway: Gateway, path: str) -> None:
    async with gateway.client() as http:
        response = await http.get(path)

    assert_error(response, 401, "invalid_api_key", None)


async def test_an_unknown_model_is_named(gateway: Gateway, key: Key) -> None:
    async with gateway.client(key) as http:
        posted = await http.post("/v1/chat/completions", json=chat(model="gpt-9"))
        got = await http.get("/v1/models/gpt-9")

    assert "`gpt-9`" in assert_error(posted, 404, "model_not_found", "model")
    assert_error(got, 404, "model_not_found", "model")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"model": "scripted", "messages": [}',
        b'{"model": "scripted", "temperature": NaN}',
        b'{"model": "\xff"}',
        b"\x00" * 100,
        b"[" * 100_000,
        DEEP,
        b'"text"',
        b"[1, 2]",
        b"null",
        b"true",
    ],
)
async def test_a_body_that_is_no_json_object_is_refused(
    gateway: Gateway, key: Key, body: bytes
) -> None:
    async with gateway.client(key) as http:
        response = await http.post("/v1/chat/completions", content=body)

    assert "JSON" in assert_error(response, 400, None, None)


CHAT_CASES: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "model"),
    ({"model": ""}, "model"),
    ({"model": 7}, "model"),
    ({"model": ["scripted"]}, "model"),
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": {"role": "user"}}, "messages"),
    ({"messages": ["hi"]}, "messages[0]"),
    ({"messages": [USER, None]}, "messages[1]"),
    ({"messages": [{"content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": 1, "content": "hi"}]}, "messages[0].role"),
    ({"stream": "yes"}, "stream"),
    ({"stream": 1}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": "usage"}, "stream_options"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": "10"}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"max_completion_tokens": -3}, "max_completion_tokens"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": 1.01}, "top_p"),
    ({"top_p": -1}, "top_p"),
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"n": "1"}, "n"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"user": 5}, "user"),
    ({"prompt_cache_key": {}}, "prompt_cache_key"),
]


@pytest.mark.parametrize(("fields", "param"), CHAT_CASES, ids=str)
async def test_a_wrong_chat_field_is_named(
    gateway: Gateway, key: Key, upstream: ScriptedUpstream, fields: dict[str, Any], param: str
) -> None:
    before = len(upstream.seen)

    async with gateway.client(key) as http:
        response = await http.post("/v1/chat/completions", json={**chat(), **fields})

    message = assert_error(response, 400, None, param)
    assert param.split("[")[0].split(".")[0] in message
    assert len(upstream.seen) == before


@pytest.mark.parametrize(
    "prompt",
    [None, "", [], [""], ["a", ""], ["a", 1], [[]], [[1], []], [-1], [1.5], [True], 7, {"a": 1}],
    ids=str,
)
async def test_a_wrong_prompt_is_named(gateway: Gateway, key: Key, prompt: Any) -> None:
    async with gateway.client(key) as http:
        response = await http.post("/v1/completions", json={"model": "scripted", "prompt": prompt})

    assert_error(response, 400, None, "prompt")


@pytest.mark.parametrize("prompt", ["a", ["a", "b"], [1, 2], [[1], [2, 3]]], ids=str)
async def test_every_form_of_prompt_is_taken(gateway: Gateway, key: Key, prompt: Any) -> None:
    async with gateway.client(key) as http:
        response = await http.post("/v1/completions", json={"model": "scripted", "prompt": prompt})

    assert response.status_code == 200, response.text


async def test_explicit_nulls_count_as_absent(gateway: Gateway, key: Key) -> None:
    names = ["stream", "stream_options", "max_tokens", "temperature", "top_p", "n", "user"]

    async with gateway.client(key) as http:
        response = await http.post(
            "/v1/chat/completions", json={**chat(), **dict.fromkeys(names, None)}
        )

    assert response.status_code == 200, response.text


@pytest.mark.parametrize("is_announced", [True, False], ids=["content-length", "chunked"])
async def test_a_20_mb_body_is_refused_without_being_kept(
    gateway: Gateway, key: Key, is_announced: bool
) -> None:
    body = b'{"model": "scripted", "messages": "' + b"x" * (20 * MIB) + b'"}'

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), MIB):
            yield body[start : start + MIB]

    async with gateway.client(key) as http:
        response = await http.post(
            "/v1/chat/completions", content=body if is_announced else pieces()
        )
        after = await http.post("/v1/chat/completions", json=chat())

    assert str(8 * MIB) in assert_error(response, 413, "request_too_large", None)
    assert after.status_code == 200


async def test_the_sdk_sees_a_20_mb_body_refused(gateway: Gateway, key: Key) -> None:
    async with openai.AsyncOpenAI(base_url=gateway.url + "/v1", api_key=key.text) as client:
        with pytest.raises(openai.APIStatusError) as caught:
            await client.chat.completions.create(**chat("x" * 20 * MIB))

    assert caught.value.status_code == 413
    assert caught.value.body["code"] == "request_too_large"  # type: ignore[index]


async def test_a_body_just_below_the_limit_is_served(gateway: Gateway, key: Key) -> None:
    text = "x" * (8 * MIB - 200)

    async with gateway.client(key) as http:
        response = await http.post("/v1/chat/completions", json=chat(text))

    assert response.status_code == 200


async def test_a_body_that_does_not_come_is_not_waited_for_without_end(
    world: World, key: Key, upstream: ScriptedUpstream
) -> None:
    with world.gateway(env={"GATEWAY_BODY_TIMEOUT_S": "0.3"}) as gateway:
        await gateway.until_ready()
        host, port = gateway.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key.text}\r\n"
            'Content-Length: 100\r\n\r\n{"model": '
        )

        writer.write(head.encode())
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), 5)
        writer.close()

    assert answer == b"HTTP/1.1 408 Request Timeout\r\n"


INTERNAL = {
    "kv_transfer_params": {"remote_block_ids": [1], "do_remote_prefill": True},
    "nvext": {"token_data": [1]},
    "prefill_result": {},
    "extra_args": {"kv_transfer_params": {}},
    "routing": {"worker": 1},
    "router_config_override": {},
    "priority": -100,
    "request_id": "00000000-0000-0000-0000-000000000000",
    "vllm_xargs": {"a": 1},
}


async def assert_nothing_internal_is_forwarded(
    gateway: Gateway, key: Key, upstream: ScriptedUpstream
) -> None:
    """Sends all that a client may not say, and looks at what arrived."""
    spoofed = {
        "x-millrace-request-id": "spoofed",
        "x-millrace-team-id": "spoofed",
        "x-millrace-session-id": "spoofed",
        "x-millrace-priority": "spoofed",
        "x-millrace-deadline-ms": "spoofed",
        "x-millrace-lease": "spoofed",
        "x-request-id": "spoofed",
        "cookie": "spoofed",
    }
    async with gateway.client(key) as http:
        response = await http.post(
            "/v1/chat/completions", json=chat("chunks=1", **INTERNAL, seed=7), headers=spoofed
        )

    assert response.status_code == 200, response.text
    request_id = response.headers["x-request-id"]
    arrived = upstream.last()
    assert set(arrived.body) == {"model", "messages", "seed"}
    sent = {name.lower(): value for name, value in arrived.headers.items()}
    assert "spoofed" not in str(sent)
    assert key.text not in str(sent)
    assert sent["x-millrace-request-id"] == request_id
    assert sent["x-millrace-team-id"] == key.team_id
    assert 0 < int(sent["x-millrace-deadline-ms"]) <= 600_000
    assert sent["traceparent"].startswith("00-")


async def test_what_only_millrace_may_say_never_reaches_an_upstream(
    gateway: Gateway, key: Key, upstream: ScriptedUpstream
) -> None:
    await assert_nothing_internal_is_forwarded(gateway, key, upstream)


async def test_the_check_for_internal_fields_can_fail(
    world: World, key: Key, upstream: ScriptedUpstream
) -> None:
    with world.gateway(mutant="forward_internal_fields") as gateway:
        await gateway.until_ready()

        with pytest.raises(AssertionError, match="Extra items in the left set"):
            await assert_nothing_internal_is_forwarded(gateway, key, upstream)


async def test_a_session_is_told_by_a_hash_of_its_team(
    world: World, gateway: Gateway, key: Key, upstream: ScriptedUpstream
) -> None:
    other = await world.new_key()
    sessions = []

    async def ask(key: Key, fields: dict[str, Any], headers: dict[str, str]) -> str | None:
        async with gateway.client(key) as http:
            response = await http.post("/v1/chat/completions", json=chat(**fields), headers=headers)
            assert response.status_code == 200, response.text
        return upstream.last().headers.get("x-millrace-session-id")

    async def knows_other() -> bool:
        async with gateway.client(other) as http:
            return (await http.get("/v1/models")).status_code == 200

    await until(knows_other, within_s=2)
    sessions.append(await ask(key, {}, {"x-session-id": "alice"}))
    sessions.append(await ask(key, {"user": "alice"}, {}))
    sessions.append(await ask(key, {"prompt_cache_key": "alice", "user": "bob"}, {}))
    of_other_team = await ask(other, {"user": "alice"}, {})
    of_nobody = await ask(key, {}, {})

    assert len(set(sessions)) == 1
    assert sessions[0] is not None
    assert "alice" not in sessions[0]
    assert of_other_team not in (None, sessions[0])
    assert of_nobody is None


async def test_unknown_paths_and_methods_get_the_error_shape(gateway: Gateway, key: Key) -> None:
    async with gateway.client(key) as http:
        unknown = await http.post("/v1/nothing", json={})
        wrong = await http.get("/v1/chat/completions")
        slash = await http.post("/v1/chat/completions/", json=chat())
        docs = await http.get("/docs")

    assert_error(unknown, 404, "unknown_url", None)
    assert_error(wrong, 405, "method_not_supported", None)
    assert_error(slash, 404, "unknown_url", None)
    assert_error(docs, 404, "unknown_url", None)


@pytest.mark.engine
async def test_hundreds_of_bad_requests_at_once_break_nothing(gateway: Gateway, key: Key) -> None:
    bodies = [b"{", b"[]", orjson.dumps(chat(max_tokens=0)), orjson.dumps(chat(model="no"))] * 75
    started_at_s = time.monotonic()

    async with gateway.client(key, limits=httpx.Limits(max_connections=50)) as http:
        replies = await asyncio.gather(
            *(http.post("/v1/chat/completions", content=body) for body in bodies)
        )
        after = await http.post("/v1/chat/completions", json=chat())

    assert {reply.status_code for reply in replies} == {400, 404}
    assert after.status_code == 200
    assert time.monotonic() - started_at_s < 30
