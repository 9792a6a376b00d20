"""Prefill, decode, loss and cancellation through a real router, Dynamo and scripted workers."""

import asyncio
import json

import httpx
import pytest

from tests.fixtures.wait import until
from tests.services.router.scripted_worker import answer

BODY = {"model": "scripted", "prompt": "one two three four", "max_tokens": 40, "ignore_eos": True}


async def ask(cluster, **changes):
    async with httpx.AsyncClient(timeout=30) as client:
        return await client.post(f"{cluster.url}/v1/completions", json={**BODY, **changes})


def prompt_of(cluster):
    """The prompt as the first worker got it, before any token of the answer was added."""
    return cluster.requests("prefill")[0]["request"]["token_ids"]


def expected_text(cluster, tokenizer, count=40):
    return tokenizer.decode(answer(prompt_of(cluster), count))


@pytest.fixture(scope="module")
def tokenizer(model_dir):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(model_dir / "tokenizer.json"))


async def test_a_request_goes_to_prefill_and_its_offer_to_decode(cluster, tokenizer):
    cluster.script(cached=3)

    reply = await ask(cluster)

    body = reply.json()
    assert body["choices"][0]["text"] == expected_text(cluster, tokenizer)
    assert body["usage"]["completion_tokens"] == 40
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 3
    (prefill,), (decode,) = cluster.requests("prefill"), cluster.requests("decode")
    assert prefill["request"]["stop_conditions"]["max_tokens"] == 1
    offer = decode["request"]["prefill_result"]["disaggregated_params"]["kv_transfer_params"]
    assert offer["offer"].endswith("-1")
    assert decode["id"] != prefill["id"], "one engine must never see the same id twice"


async def test_both_workers_get_the_callers_trace(cluster):
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    async with httpx.AsyncClient(timeout=30) as client:
        await client.post(
            f"{cluster.url}/v1/completions",
            json=BODY,
            headers={"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"},
        )

    calls = cluster.requests("prefill") + cluster.requests("decode")
    assert [call["metadata"]["traceparent"].split("-")[1] for call in calls] == [trace_id] * 2


@pytest.mark.fault
async def test_decode_resumes_from_the_last_token_after_worker_death(make_cluster, tokenizer):
    cluster = make_cluster(decode=2)
    cluster.script(die_after_decode=15)

    reply = await ask(cluster)

    body = reply.json()
    assert body["choices"][0]["text"] == expected_text(cluster, tokenizer)
    assert body["usage"]["prompt_tokens"] == len(prompt_of(cluster)), "the answer is no prompt"
    assert body["usage"]["completion_tokens"] == 40
    first, second = sorted(
        cluster.requests("decode"), key=lambda call: len(call["request"]["token_ids"])
    )
    assert len(second["request"]["token_ids"]) == len(first["request"]["token_ids"]) + 15


async def test_every_offer_is_used_at_most_once(make_cluster):
    cluster = make_cluster(decode=2)
    cluster.script(die_after_decode=15)

    await ask(cluster)

    offers = [
        call["request"]["prefill_result"]["disaggregated_params"]["kv_transfer_params"]["offer"]
        for call in cluster.requests("decode")
    ]
    assert len(offers) == len(set(offers)) == 2


async def test_a_client_cannot_hand_in_a_kv_offer(cluster):
    forged = {"do_remote_prefill": True, "offer": "forged", "remote_block_ids": [[1]]}

    await ask(
        cluster,
        kv_transfer_params=forged,
        prefill_result={"disaggregated_params": {"kv_transfer_params": forged}},
        extra_args={"kv_transfer_params": forged},
    )

    sent = json.dumps(cluster.requests("prefill") + cluster.requests("decode"))
    assert "forged" not in sent


@pytest.mark.fault
async def test_decode_prefills_itself_when_no_prefill_worker_is_left(make_cluster):
    cluster = make_cluster(prefill=0)

    reply = await ask(cluster)

    assert reply.status_code == 200
    (decode,) = cluster.requests("decode")
    assert not decode["request"].get("prefill_result")


@pytest.mark.fault
async def test_prefill_answers_alone_when_no_decode_worker_is_left(make_cluster, tokenizer):
    cluster = make_cluster(decode=0)

    reply = await ask(cluster)

    assert reply.json()["choices"][0]["text"] == expected_text(cluster, tokenizer)


@pytest.mark.fault
async def test_decode_prefills_itself_when_prefill_refuses(cluster):
    cluster.script(refuse_prefill=True)

    reply = await ask(cluster)

    assert reply.status_code == 200
    (decode,) = cluster.requests("decode")
    assert not decode["request"].get("prefill_result")


@pytest.mark.fault
async def test_a_dead_decode_worker_is_left_at_once_for_prefill(make_cluster, tokenizer):
    cluster = make_cluster()
    cluster.workers["decode-0"].kill()

    reply = await ask(cluster)

    # Discovery still lists the dead worker; one refused connection is all that it costs.
    assert reply.json()["choices"][0]["text"] == expected_text(cluster, tokenizer)
    assert reply.elapsed.total_seconds() < 1


@pytest.mark.fault
async def test_a_request_waits_for_a_worker_that_is_restarting(make_cluster):
    cluster = make_cluster(prefill=0, decode=0)

    request = asyncio.create_task(ask(cluster))
    cluster.start("decode-late", "decode")

    assert (await asyncio.wait_for(request, 25)).status_code == 200


@pytest.mark.fault
async def test_without_any_worker_the_caller_is_told_so(make_cluster):
    cluster = make_cluster(prefill=0, decode=0, no_worker_wait_s=0.3)

    reply = await ask(cluster)

    assert reply.status_code == 503
    assert reply.json()["error"]["code"] == "no_capacity"
    assert reply.headers["retry-after"]


async def test_cancel_reaches_the_worker_and_reports_what_was_computed(cluster):
    cluster.script(delay_s=0.05)
    events = []
    async with (
        httpx.AsyncClient(timeout=30) as client,
        client.stream(
            "POST",
            f"{cluster.url}/v1/completions",
            json={**BODY, "stream": True, "max_tokens": 400},
            headers={"x-millrace-request-id": "to-cancel"},
        ) as stream,
    ):
        async for line in stream.aiter_lines():
            if not line:
                continue
            events.append(json.loads(line.removeprefix("data: ")))
            if len(events) == 3:
                reply = await client.post(f"{cluster.url}/internal/requests/to-cancel/cancel")
                assert reply.json() == {"was_running": True}

    usage, error = events[-2]["usage"], events[-1]["error"]
    text_events = [event for event in events[:-2] if event["choices"][0]["text"]]
    assert error["code"] == "request_cancelled"
    assert 3 <= usage["completion_tokens"] < 50
    assert len(text_events) <= usage["completion_tokens"]
    await until(lambda: cluster.aborts("decode") == ["to-cancel-decode-1"], within_s=3)


async def test_cancel_in_the_middle_of_a_prefill_dispatches_no_decode(cluster):
    cluster.script(prefill_s=1.0)
    async with httpx.AsyncClient(timeout=30) as client:
        request = asyncio.create_task(
            client.post(
                f"{cluster.url}/v1/completions",
                json=BODY,
                headers={"x-millrace-request-id": "early"},
            )
        )
        await until(lambda: cluster.requests("prefill"), within_s=5)
        await client.post(f"{cluster.url}/internal/requests/early/cancel")
        reply = await asyncio.wait_for(request, 5)

    assert reply.json()["error"]["code"] == "request_cancelled"
    assert reply.json()["usage"]["completion_tokens"] == 0
    await until(lambda: cluster.aborts("prefill") == ["early-prefill-1"], within_s=3)
    assert cluster.requests("decode") == []


@pytest.mark.parametrize("is_lost_in_dynamo", [False, True])
async def test_a_client_that_goes_away_stops_its_worker(cluster, is_lost_in_dynamo):
    cluster.script(delay_s=0.05, deaf=is_lost_in_dynamo)

    async with httpx.AsyncClient(timeout=30) as client:
        body = {**BODY, "stream": True, "max_tokens": 2000}
        async with client.stream("POST", f"{cluster.url}/v1/completions", json=body) as stream:
            async for _ in stream.aiter_lines():
                break

    await until(lambda: len(cluster.aborts("decode")) == 1, within_s=3)


@pytest.mark.parametrize("is_lost_in_dynamo", [False, True])
async def test_a_client_that_waits_for_a_whole_answer_and_leaves_stops_the_prefill(
    cluster, is_lost_in_dynamo
):
    cluster.script(prefill_s=1.0, deaf=is_lost_in_dynamo)
    request_id = f"left-{is_lost_in_dynamo}"
    headers = {"x-millrace-request-id": request_id}

    async with httpx.AsyncClient(timeout=30) as client:
        request = asyncio.create_task(
            client.post(f"{cluster.url}/v1/completions", json=BODY, headers=headers)
        )
        await until(lambda: cluster.requests("prefill"), within_s=5)
        request.cancel()
        await asyncio.wait([request])

    await until(lambda: cluster.aborts("prefill") == [f"{request_id}-prefill-1"], within_s=3)
    await until(lambda: "request_served" in cluster.router_log(), within_s=3)
    assert cluster.requests("decode") == []


async def test_an_answer_that_ends_by_itself_is_not_aborted(cluster):
    async with httpx.AsyncClient(timeout=30) as client:
        for is_streamed in (False, True):
            body = {**BODY, "stream": is_streamed}
            await client.post(f"{cluster.url}/v1/completions", json=body)

    await asyncio.sleep(0.5)
    assert len(cluster.requests("decode")) == 2
    assert cluster.aborts("prefill") == cluster.aborts("decode") == []


@pytest.mark.fault
async def test_the_deadline_ends_a_request_with_an_error_event(cluster):
    cluster.script(delay_s=0.05)

    async with httpx.AsyncClient(timeout=30) as client:
        reply = await client.post(
            f"{cluster.url}/v1/completions",
            json={**BODY, "stream": True, "max_tokens": 2000},
            headers={"x-millrace-deadline-ms": "400"},
        )

    events = [json.loads(e[6:]) for e in reply.text.split("\n\n") if e]
    assert events[-1]["error"]["code"] == "deadline_exceeded"
    assert "[DONE]" not in reply.text


async def test_a_session_stays_on_its_decode_worker(make_cluster):
    cluster = make_cluster(decode=2)
    headers = {"x-millrace-session-id": "s1"}

    async with httpx.AsyncClient(timeout=30) as client:
        for turn in range(6):
            body = {**BODY, "prompt": f"turn {turn}", "max_tokens": 1}
            await client.post(f"{cluster.url}/v1/completions", json=body, headers=headers)

    workers = {path.name for path in cluster.script_file.parent.glob("*.decode.*.requests")}
    assert len(workers) == 1


async def test_requests_spread_over_decode_workers(make_cluster):
    cluster = make_cluster(decode=2)
    cluster.script(delay_s=0.02)

    await asyncio.gather(*(ask(cluster, prompt=f"number {i}") for i in range(8)))

    files = list(cluster.script_file.parent.glob("*.decode.*.requests"))
    assert [len(path.read_text().splitlines()) for path in files] == [4, 4]


@pytest.mark.fault
async def test_sigterm_is_a_clean_stop(make_cluster):
    cluster = make_cluster(prefill=0)
    cluster.script(delay_s=0.02)
    running = asyncio.create_task(ask(cluster))
    await until(lambda: cluster.requests("decode"), within_s=5)

    exit_code = await asyncio.to_thread(cluster.router.stop)

    assert (await running).status_code == 200, "a running request may end"
    assert exit_code == 0
