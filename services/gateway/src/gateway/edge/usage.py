"""GET /v1/usage: what the caller's team used, as billing's ledger has it."""

from datetime import UTC, datetime
from typing import Any

import grpc.aio

from gateway.edge.state import Gateway
from gateway.errors import QueryInvalid, UsageUnavailable
from millrace.v1 import usage_pb2
from wire.months import month_of

TIMEOUT_S = 5.0


async def summarize(
    gateway: Gateway, team_id: str, start: str | None, end: str | None, now: datetime
) -> dict[str, Any]:
    """Usage of [start, end), by default of the present UTC month."""
    month_start, month_end = month_of(now)
    start_at = month_start if start is None else _moment(start, "start")
    end_at = month_end if end is None else _moment(end, "end")
    if end_at <= start_at:
        raise QueryInvalid("Expected `end` to be after `start`.", "end")
    request = usage_pb2.SummarizeUsageRequest(team_id=team_id)
    request.start.FromDatetime(start_at)
    request.end.FromDatetime(end_at)
    try:
        summary = await gateway.usage.SummarizeUsage(request, timeout=TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        raise UsageUnavailable(
            "Usage cannot be looked up right now; nothing is lost. Try again in a moment."
        ) from error
    return {
        "object": "usage",
        "team_id": team_id,
        "start": start_at.isoformat(),
        "end": end_at.isoformat(),
        "complete_through": _text(summary),
        "data": [_line(line) for line in summary.lines],
    }


def _line(line: usage_pb2.UsageLine) -> dict[str, Any]:
    return {
        "object": "usage.line",
        "model": line.model,
        "key_id": line.key_id,
        "requests": line.requests,
        "prompt_tokens": line.prompt_tokens,
        "cached_tokens": line.cached_tokens,
        "completion_tokens": line.completion_tokens,
        "cost_usd": line.cost_usd,
    }


def _moment(text: str, name: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise QueryInvalid(
            f"Expected `{name}` to be an ISO 8601 date such as 2026-01-31.", name
        ) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _text(summary: usage_pb2.UsageSummary) -> str | None:
    if not summary.HasField("complete_through"):
        return None
    return summary.complete_through.ToDatetime(UTC).isoformat()
