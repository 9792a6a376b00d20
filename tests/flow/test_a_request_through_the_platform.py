"""Read this first: one real request from socket to ledger, with the unmodified OpenAI SDK."""

import json
import secrets
from pathlib import Path

import openai
import pytest

from tests.fixtures.wait import until

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ASK = {"model": "smollm2", "messages": QUESTION, "temperature": 0, "max_tokens": 32}


def unique_prompt(words: int) -> list[dict[str, str]]:
    """A prompt that no cache has seen."""
    text = " ".join(secrets.choice(["river", "stone", "cloud", "lamp"]) for _ in range(words))
    return [{"role": "user", "content": f"{secrets.token_hex(8)} {text}. Continue."}]


def test_the_question_of_the_readme_is_answered(client):
    answer = client.chat.completions.create(**ASK)

    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens == 37


async def test_the_async_client_gets_the_same_answer(client, async_client):
    ours = client.chat.completions.create(**ASK)
    theirs = await async_client.chat.completions.create(**ASK)

    assert theirs.choices[0].message.content == ours.choices[0].message.content


@pytest.mark.parametrize("question", [QUESTION, unique_prompt(60)], ids=["short", "long"])
def test_streaming_text_equals_non_streaming_text(client, question):
    ask = {**ASK, "messages": question}
    whole = client.chat.completions.create(**ask)
    chunks = list(
        client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True})
    )

    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    finishes = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert text == whole.choices[0].message.content
    assert finishes[-1] == whole.choices[0].finish_reason
    assert all(finish is None for finish in finishes[:-1])
    usage = chunks[-1].usage
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens == whole.usage.prompt_tokens
    assert len(text) > 0
    assert len({c.id for c in chunks}) == 1


async def test_async_streams_carry_no_usage_unless_asked(async_client):
    stream = await async_client.chat.completions.create(**ASK, stream=True)

    chunks = [chunk async for chunk in stream]

    assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_completions_answer_too(client):
    ask = {"model": "smollm2", "prompt": "The capital of France is", "temperature": 0}
    answer = client.completions.create(**ask, max_tokens=4)
    streamed = list(client.completions.create(**ask, max_tokens=4, stream=True))

    assert "Paris" in answer.choices[0].text
    assert "".join(c.choices[0].text for c in streamed) == answer.choices[0].text
    assert answer.usage.completion_tokens == 4


def test_the_model_is_listed(client):
    assert [model.id for model in client.models.list()] == ["smollm2"]
    assert client.models.retrieve("smollm2").id == "smollm2"


async def test_the_prompts_kv_goes_over_nixl_and_into_the_second_tier(
    client, worker_status, kvtier_stats
):
    decode, tier = await worker_status("decode-1"), await kvtier_stats()
    before = await worker_status("prefill-1")

    client.chat.completions.create(**{**ASK, "messages": unique_prompt(120), "max_tokens": 4})

    async def has_pulled() -> bool:
        return (await worker_status("decode-1")).nixl_bytes_pulled > decode.nixl_bytes_pulled

    async def has_stored() -> bool:
        now = await kvtier_stats()
        return now.used_bytes > tier.used_bytes and now.objects > tier.objects

    await until(has_pulled, within_s=10)
    await until(has_stored, within_s=10)
    prefill = await worker_status("prefill-1")
    assert prefill.kvtier_bytes_stored > before.kvtier_bytes_stored
    assert prefill.nixl_failures == before.nixl_failures
    assert prefill.nixl_leases_expired == before.nixl_leases_expired


def test_the_second_turn_of_a_session_reports_cached_tokens(client):
    first_turn = unique_prompt(60)
    first = client.chat.completions.create(**{**ASK, "messages": first_turn}, user="session-1")

    turns = [
        *first_turn,
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "And then?"},
    ]
    second = client.chat.completions.create(**{**ASK, "messages": turns}, user="session-1")

    assert first.usage.prompt_tokens_details.cached_tokens < first.usage.prompt_tokens
    assert second.usage.prompt_tokens_details.cached_tokens >= 64
    assert second.usage.prompt_tokens_details.cached_tokens < second.usage.prompt_tokens


async def test_one_trace_holds_every_hop(stack, client):
    raw = client.chat.completions.with_raw_response.create(**ASK)
    request_id = raw.headers["x-request-id"]

    def spans() -> list[dict]:
        files = Path(stack.internal["TRACE_DIR"]).glob("*.jsonl")
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        ours = [s for s in lines if request_id in json.dumps(s["attributes"])]
        trace_ids = {span["context"]["trace_id"] for span in ours}
        found = [span for span in lines if span["context"]["trace_id"] in trace_ids]
        return found if len(found) >= 7 else []

    found = await until(spans, within_s=5)
    assert len({span["context"]["trace_id"] for span in found}) == 1
    by_name = {span["name"]: span for span in found}
    for child, parent in [
        ("gateway.upstream", "gateway.request"),
        ("router.request", "gateway.upstream"),
        ("router.prefill", "router.request"),
        ("router.decode", "router.request"),
        ("prefill.generate", "router.prefill"),
        ("decode.generate", "router.decode"),
    ]:
        assert by_name[child]["parent_id"] == by_name[parent]["context"]["span_id"], child


async def test_the_usage_row_equals_the_responses_usage(client, ledger):
    raw = client.chat.completions.with_raw_response.create(**ASK)
    usage = raw.parse().usage

    row = await ledger.row_of(raw.headers["x-request-id"])

    assert row["prompt_tokens"] == usage.prompt_tokens
    assert row["cached_tokens"] == usage.prompt_tokens_details.cached_tokens
    assert row["completion_tokens"] == usage.completion_tokens
    assert row["is_exact"]
    assert row["model"] == "smollm2"


async def test_a_stream_that_its_client_leaves_is_metered_for_what_was_computed(
    stack, client, ledger
):
    raw = client.chat.completions.with_raw_response.create(
        **{**ASK, "messages": unique_prompt(10), "max_tokens": 400},
        extra_body={"ignore_eos": True},
        stream=True,
    )
    stream = raw.parse()
    for _, chunk in zip(range(6), stream, strict=False):
        assert chunk.choices[0].finish_reason is None
    stream.close()

    row = await ledger.row_of(raw.headers["x-request-id"])

    assert 5 <= row["completion_tokens"] < 200, "the engine went on without a reader"
    assert row["is_exact"]
    assert row["outcome"].lower().endswith("client_disconnected")


async def test_a_whole_answer_that_its_client_leaves_is_metered_for_what_was_computed(
    client, ledger
):
    left = "SELECT * FROM usage_event WHERE outcome ILIKE '%client_disconnected'"
    before = {row["request_id"] for row in await ledger.query(left)}

    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=2.0, max_retries=0).chat.completions.create(
            **{**ASK, "messages": unique_prompt(11), "max_tokens": 2000},
            extra_body={"ignore_eos": True},
        )

    async def new_rows():
        return [row for row in await ledger.query(left) if row["request_id"] not in before]

    (row,) = await until(new_rows, within_s=20)
    assert 1 <= row["completion_tokens"] < 2000, "the engine went on without a reader"
    assert row["is_exact"]


async def test_usage_of_the_team_is_served_and_the_books_balance(stack, client, ledger):
    raw = client.chat.completions.with_raw_response.create(**ASK)
    await ledger.row_of(raw.headers["x-request-id"])

    # From a fixed day on: by default the report is this month's, and the stack may be older.
    report = client.get("/usage?start=2026-01-01", cast_to=object)

    (line,) = [line for line in report["data"] if line["model"] == "smollm2"]
    (sums,) = await ledger.query(
        "SELECT count(*) AS requests, sum(completion_tokens) AS completion FROM usage_event"
    )
    assert line["requests"] == sums["requests"]
    assert line["completion_tokens"] == sums["completion"]
    assert await ledger.faults() == {}


def test_logs_and_spool_hold_no_key_prompt_or_completion(stack, client):
    marker = f"secretmarker{secrets.token_hex(8)}"
    client.chat.completions.create(
        **{**ASK, "messages": [{"role": "user", "content": f"Say {marker}"}], "max_tokens": 8}
    )

    files = [
        path
        for folder in ("logs", "gateway-spool", "traces", "nats")
        for path in (stack.run.root / folder).rglob("*")
        if path.is_file()
    ]
    leaks = [
        str(path)
        for path in files
        if marker.encode() in path.read_bytes() or stack.api_key.encode() in path.read_bytes()
    ]
    assert len(files) > 10
    assert leaks == []
