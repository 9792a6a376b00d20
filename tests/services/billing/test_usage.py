"""Usage questions: the same exact figures over gRPC, the admin API and the command line."""

from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from millrace.v1 import usage_pb2, usage_pb2_grpc
from tests.services.billing.world import World, usage_event
from wire import grpc_edge, ids

PRICE = ("0.15", "0.05", "0.6")
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


async def test_grpc_and_admin_api_give_the_same_exact_figures(world: World) -> None:
    billing = await world.start()
    team = await billing.create_team()
    await billing.set_price("smollm2", *PRICE)
    await billing.set_price("tiny", "0.000000001", "0", "0")
    # 60 * 0.15 + 40 * 0.05 + 7 * 0.6 = 15.2 micro-USD each.
    events = [usage_event(team, occurred_at=NOON) for _ in range(3)]
    events.append(
        usage_event(team, model="tiny", prompt=1, cached=0, completion=0, occurred_at=NOON)
    )
    segment = usage_event(team, occurred_at=NOON, request_id=events[0].request_id, seq=1)
    other_key = usage_event(team, occurred_at=NOON, key_id="deadbeef")
    await world.publish([*events, segment, other_key], [usage_event("team-b", occurred_at=NOON)])
    await world.until_settled()

    summary = await _summarize(billing.grpc_target, team_id=team)
    start, end = "2026-03-10T12:00:00Z", "2026-03-10T13:00:00Z"
    answer = await billing.call("GET", f"/usage?team_id={team}&start={start}&end={end}")

    expected = [
        ("smollm2", "0123abcd", 3, 400, 160, 28, "0.0000608"),
        ("smollm2", "deadbeef", 1, 100, 40, 7, "0.0000152"),
        ("tiny", "0123abcd", 1, 1, 0, 0, "0.000000000000001"),
    ]
    assert [_figures(line) for line in summary.lines] == expected
    assert [tuple(line.values()) for line in answer["lines"]] == [
        (model, key, *rest) for model, key, *rest in expected
    ]
    assert answer["total_cost_usd"] == "0.000076000000001"
    assert answer["unpriced_events"] == 0
    assert summary.complete_through.ToDatetime(tzinfo=UTC) == NOON


async def test_the_period_includes_its_start_and_not_its_end(world: World) -> None:
    billing = await world.start()
    await billing.set_price("smollm2", *PRICE)
    tick = timedelta(microseconds=1)
    moments = [NOON - tick, NOON, NOON + HOUR - tick, NOON + HOUR]
    await world.publish([usage_event("team-a", occurred_at=moment) for moment in moments])
    await world.until_settled()

    summary = await _summarize(
        billing.grpc_target, team_id="team-a", start=_stamp(NOON), end=_stamp(NOON + HOUR)
    )

    assert [line.requests for line in summary.lines] == [2]


async def test_one_request_can_be_asked_for_by_its_team_only(world: World) -> None:
    billing = await world.start()
    await billing.set_price("smollm2", *PRICE)
    wanted = usage_event("team-a")
    await world.publish([wanted, usage_event("team-a"), usage_event("team-b")])
    await world.until_settled()

    found = await _summarize(billing.grpc_target, team_id="team-a", request_id=wanted.request_id)
    foreign = await _summarize(billing.grpc_target, team_id="team-b", request_id=wanted.request_id)

    assert [(line.requests, line.cost_usd) for line in found.lines] == [(1, "0.0000152")]
    assert not foreign.lines


async def test_what_waits_for_a_price_is_counted_apart(world: World) -> None:
    billing = await world.start()
    team = await billing.create_team()
    await world.publish([usage_event(team, model="new-model")])
    await world.until_settled()

    answer = await billing.call("GET", f"/usage?team_id={team}")

    assert answer["lines"] == []
    assert answer["unpriced_events"] == 1
    assert answer["total_cost_usd"] == "0"


async def test_a_question_that_makes_no_sense_is_an_invalid_argument(world: World) -> None:
    billing = await world.start()
    questions: list[dict[str, Any]] = [
        {"team_id": ""},
        {"team_id": "a", "request_id": "no-uuid"},
        {"team_id": "a", "start": Timestamp(seconds=2**60)},
        {"team_id": "a", "start": Timestamp(seconds=20), "end": Timestamp(seconds=10)},
        {"team_id": "a\0b"},
    ]

    for question in questions:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await _summarize(billing.grpc_target, **question)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT, question
        assert "SELECT" not in str(refused.value.details())


async def test_an_unknown_team_has_no_usage(world: World) -> None:
    billing = await world.start()

    summary = await _summarize(
        billing.grpc_target, team_id="team-none", request_id=ids.new_request_id()
    )

    assert not summary.lines
    assert not summary.HasField("complete_through")


async def _summarize(target: str, **question: Any) -> usage_pb2.UsageSummary:
    async with grpc_edge.channel(target) as channel:
        request = usage_pb2.SummarizeUsageRequest(**question)
        return await usage_pb2_grpc.UsageStub(channel).SummarizeUsage(request, timeout=10)


def _figures(line: usage_pb2.UsageLine) -> tuple[object, ...]:
    return (
        line.model,
        line.key_id,
        line.requests,
        line.prompt_tokens,
        line.cached_tokens,
        line.completion_tokens,
        line.cost_usd,
    )


def _stamp(moment: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp
