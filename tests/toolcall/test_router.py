"""The whole router with a scripted engine: every case over HTTP, in both modes, by two clients.

The suite's own client reads the wire strictly; the official SDK shows that users get the same.
"""

import openai
import pytest

from tests.toolcall import sdk
from tests.toolcall.cluster import MODEL_NAME
from toolcheck_suite import cases
from toolcheck_suite.client import Client
from toolcheck_suite.scripted import compare, request

FAST = ("glm47",)
"""One router for each format takes seconds to start; the others run in the slow part."""
STREAM_SPLITS = ("tokens", "whole")
BY_FORMAT: dict[tuple[str, bool], list[cases.Case]] = {}
for _case in cases.load():
    BY_FORMAT.setdefault((_case.format, _case.has_family_tokens), []).append(_case)


def routers():
    for (name, has_family_tokens), found in BY_FORMAT.items():
        marks = () if name in FAST else (pytest.mark.engine,)
        yield pytest.param(found, id=f"{name}{'-tokens' * has_family_tokens}", marks=marks)


def cluster_for(found, cluster_of):
    return cluster_of(found[0].format, found[0].has_family_tokens)


def failures_of(found, answer_of, splits):
    """Case, split and every difference; all cases run, so that one report shows them all."""
    return {
        f"{case.id} ({split})": broken
        for case in found
        for split in splits
        if (broken := compare(case, answer_of(request(case, split, case.start))))
    }


@pytest.mark.parametrize("found", [*routers()])
def test_whole_answers_are_the_expected_ones(found, cluster_of):
    cluster = cluster_for(found, cluster_of)
    bodies = []

    with Client(cluster.url, MODEL_NAME, None) as client:

        def ask(body):
            bodies.append(body)
            return client.whole(body)

        failures = failures_of(found, ask, ("runs-5",))

    assert failures == {}
    sent = [cluster.requests(run_of(body))[0]["request"] for body in bodies]
    bound = [case.id for case, request in zip(found, sent, strict=True) if grammar_in(request)]
    assert bound == [case.id for case in found if is_bound(case)]


@pytest.mark.parametrize("found", [*routers()])
def test_streamed_answers_are_the_expected_ones_in_every_split(found, cluster_of):
    with Client(cluster_for(found, cluster_of).url, MODEL_NAME, None) as client:
        failures = failures_of(found, client.streamed, STREAM_SPLITS)

    assert failures == {}


@pytest.mark.parametrize("found", [*routers()])
def test_the_official_sdk_gets_the_same(found, cluster_of):
    url = cluster_for(found, cluster_of).url
    some = found[::3]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        whole = failures_of(some, lambda body: sdk.whole(client, MODEL_NAME, body), ("runs-4",))
        streamed = failures_of(
            some, lambda body: sdk.streamed(client, MODEL_NAME, body), ("runs-2", "late")
        )

    assert whole == {}
    assert streamed == {}


def test_a_fault_in_a_call_that_has_streamed_is_an_error_and_no_second_answer(cluster_of):
    """The grammar forbids what is scripted here: only an engine without it can come so far."""
    cluster = cluster_of("glm47")
    (case,) = [case for case in cases.load() if case.id == "missing-required-with-others"]
    body = request(case, "tokens", case.start)

    with Client(cluster.url, MODEL_NAME, None) as client:
        answer = client.streamed(body)

    assert [call.name for call in answer.calls] == ["forecast"]
    assert answer.error is not None
    assert answer.error.code == "invalid_tool_call"
    assert answer.malformed == ()
    assert len(cluster.requests(run_of(body))) == 1


def test_a_retry_goes_on_behind_what_was_kept_under_the_same_grammar(cluster_of):
    cluster = cluster_of("glm47")
    (case,) = [case for case in cases.load() if case.id == "retry-keeps-text-before-the-call"]
    body = request(case, "tokens", case.start)

    with Client(cluster.url, MODEL_NAME, None) as client:
        client.streamed(body)

    first, second = (found["request"] for found in cluster.requests(run_of(body)))
    kept = second["extra_args"]["grammar_prefix_tokens"]
    assert kept > 0
    assert len(second["token_ids"]) == len(first["token_ids"]) + kept
    assert grammar_in(second) == grammar_in(first)


def test_earlier_numbers_reach_the_prompt_as_they_were_written(cluster_of):
    cluster = cluster_of("glm47")
    (case,) = [case for case in cases.load() if case.id == "earlier-numbers-as-they-were-written"]
    body = request(case, "whole", case.start)

    with Client(cluster.url, MODEL_NAME, None) as client:
        client.whole(body)

    (sent,) = cluster.requests(run_of(body))
    assert "<arg_value>123456789012345678901234567890</arg_value>" in sent["prompt"]
    assert "<arg_value>1.0</arg_value>" in sent["prompt"]


@pytest.mark.fault
@pytest.mark.parametrize(
    ("case_id", "split"),
    [("two-calls", "die-9"), ("text-before-a-call", "die-6"), ("unicode", "die-20")],
)
def test_a_lost_worker_changes_no_answer(case_id, split, cluster_of):
    cluster = cluster_of("glm47", decode_workers=4)
    found = [case for case in cases.load() if case.id == case_id]

    with Client(cluster.url, MODEL_NAME, None) as client:
        failures = failures_of(found, client.streamed, (split,))

    assert failures == {}


def run_of(body):
    """The nonce in the request's marker."""
    text = str(body["messages"])
    return text[text.rindex("run:") + 4 :].split("]]")[0]


def grammar_in(request):
    """The grammar that the engine was sent, None without one."""
    return (request["sampling_options"].get("guided_decoding") or {}).get("grammar")


def is_bound(case):
    structure = case.request.get("response_format", {}).get("type", "text")
    return bool(
        case.request.get("tools") or structure != "text" or case.request.get("structured_outputs")
    )
