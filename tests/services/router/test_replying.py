"""An answer on its way out: how it ends when something goes wrong that nobody expected."""

import asyncio
import json
import threading

import httpx
import pytest

from launcher import model
from router.constrain import Constrainer
from router.edge.app import build_app
from router.render import Renderer
from router.service import RouterService
from router.settings import RouterSettings
from router.workers import Workers
from tests.services.router.scripted_engines import Engines
from toolcall.compiling.checker import GrammarChecker

NO_TOKEN = "x"
"""In the place of a token id: no engine sends it, and no code expects it."""


@pytest.fixture
async def client():
    """Asks a router in this process whose engines answer with two tokens and then NO_TOKEN."""
    folder = model.ensure("smollm2")
    renderer, workers = Renderer(folder, 8192), Workers(block_tokens=32)
    await workers.open(Engines([[100, 101, NO_TOKEN]]), "test")
    constrainer = Constrainer(renderer, GrammarChecker(folder))
    settings = RouterSettings(model_dir=folder, model_name="scripted")
    app = build_app(RouterService(settings, renderer, constrainer, workers))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:
        yield client


def body(**changes):
    return {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}], **changes}


async def test_a_failure_that_nobody_expected_is_an_error_in_openais_shape(client):
    reply = await client.post("/v1/chat/completions", json=body())

    assert reply.status_code == 500
    error = reply.json()["error"]
    assert (error["type"], error["code"]) == ("server_error", "internal_error")


async def test_a_stream_that_fails_in_the_middle_ends_in_one_error_event(client):
    headers = {"x-millrace-request-id": "r-7"}

    reply = await client.post("/v1/chat/completions", json=body(stream=True), headers=headers)

    *before, last = [json.loads(event[6:]) for event in reply.text.split("\n\n") if event]
    assert last["error"]["code"] == "internal_error"
    assert "r-7" in last["error"]["message"]
    assert not any("error" in event for event in before)


async def test_a_failure_before_the_answer_has_the_same_shape(client, monkeypatch):
    monkeypatch.setattr(Constrainer, "plan", lambda *_: 1 / 0)

    reply = await client.post("/v1/chat/completions", json=body(stream=True))

    assert reply.status_code == 500
    assert reply.json()["error"]["code"] == "internal_error"


async def test_other_requests_are_served_while_a_large_schema_is_read(client, monkeypatch):
    is_read = threading.Event()
    monkeypatch.setattr("router.constrain.plan_output", lambda **_: is_read.wait(10) and 1 / 0)
    reading = asyncio.create_task(client.post("/v1/chat/completions", json=body()))
    await asyncio.sleep(0.05)

    try:
        assert (await client.get("/healthz")).status_code == 200
        assert not reading.done()
    finally:
        is_read.set()
    assert (await reading).status_code == 500
