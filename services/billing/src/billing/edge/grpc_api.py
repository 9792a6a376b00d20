"""gRPC: the directory as a stream of changes, and questions about usage."""

import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp
from sqlalchemy.ext.asyncio import AsyncEngine

import observe
from billing import metrics
from billing.directory import DirectoryChange
from billing.edge.translate import INTERNAL, reply_to
from billing.errors import BillingError, InvalidQuestion
from billing.feed import DirectoryFeed
from billing.store import usage as usage_store
from billing.store.database import brief
from billing.usage import UsageQuestion, UsageSummary, money_text
from millrace.v1 import directory_pb2, directory_pb2_grpc, usage_pb2, usage_pb2_grpc
from wire import grpc_edge

log = observe.get_logger(__name__)


class DirectoryServicer(directory_pb2_grpc.DirectoryServicer):
    """Snapshot, changes, signs of life; a slow follower gets the newest state, nothing queues."""

    def __init__(self, feed: DirectoryFeed) -> None:
        self._feed = feed

    async def WatchDirectory(  # noqa: N802  # gRPC's name
        self,
        request: directory_pb2.WatchDirectoryRequest,
        context: grpc.aio.ServicerContext[Any, Any],  # noqa: ARG002  # gRPC passes it
    ) -> AsyncIterator[directory_pb2.DirectoryUpdate]:
        """Streams until the follower leaves or this process stops; the feed is loaded by now."""
        log.info("directory_follower_came", follower=request.follower)
        with metrics.FOLLOWERS.track_inprogress():
            directory = self._feed.directory
            change = directory.snapshot()
            yield _update(change, is_snapshot=True)
            while not self._feed.is_closed:
                if self._feed.directory is not directory:
                    directory = self._feed.directory
                    change = directory.snapshot()
                    yield _update(change, is_snapshot=True)
                elif directory.revision > change.revision:
                    change = directory.since(change.revision)
                    yield _update(change, is_snapshot=False)
                else:
                    await self._feed.wait_for_change(grpc_edge.SIGN_OF_LIFE_S)
                    if directory.revision == change.revision:
                        yield directory_pb2.DirectoryUpdate(revision=change.revision)


class UsageServicer(usage_pb2_grpc.UsageServicer):
    """Answers from the ledger."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def SummarizeUsage(  # noqa: N802  # gRPC's name
        self, request: usage_pb2.SummarizeUsageRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> usage_pb2.UsageSummary:
        """A team's usage by model and key."""
        try:
            question = _question(request)
            async with self._engine.connect() as db:
                return _summary(await usage_store.summarize(db, question))
        except Exception as error:  # noqa: BLE001  # gRPC would send the error's own words, SQL too
            await _abort(context, error)


def _question(request: usage_pb2.SummarizeUsageRequest) -> UsageQuestion:
    if not request.team_id:
        raise InvalidQuestion("team_id is empty: name the team whose usage is asked for.")
    return UsageQuestion(
        team_id=request.team_id,
        start=_moment(request.start) if request.HasField("start") else None,
        end=_moment(request.end) if request.HasField("end") else None,
        request_id=_request_id(request.request_id) if request.request_id else None,
    )


def _moment(timestamp: Timestamp) -> datetime:
    try:
        return timestamp.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidQuestion(
            f"start and end must be times between year 1 and 9999: {error}"
        ) from error


def _request_id(value: str) -> uuid.UUID:
    try:
        return uuid.UUID(value)
    except ValueError as error:
        raise InvalidQuestion(f"request_id must be a UUID, got {value[:64]!r}.") from error


async def _abort(context: grpc.aio.ServicerContext[Any, Any], error: Exception) -> NoReturn:
    """Ends the call with the status that belongs to the error."""
    reply = reply_to(error)
    if reply is None:
        log.error("grpc_call_broke", exc_info=error)
        reply = INTERNAL
    elif not isinstance(error, BillingError):
        log.warning("grpc_call_failed", code=reply.code, error=brief(error))
    await context.abort(reply.grpc_status, reply.message)
    raise AssertionError("abort raises")


def _update(change: DirectoryChange, *, is_snapshot: bool) -> directory_pb2.DirectoryUpdate:
    return directory_pb2.DirectoryUpdate(
        is_snapshot=is_snapshot,
        revision=change.revision,
        teams=[
            directory_pb2.Team(team_id=team.team_id, name=team.name, is_suspended=team.is_suspended)
            for team in change.teams
        ],
        keys=[
            directory_pb2.ApiKey(
                key_id=key.key_id,
                sha256=key.sha256,
                team_id=key.team_id,
                name=key.name,
                is_revoked=key.revoked_at is not None,
            )
            for key in change.keys
        ],
        prices=[
            directory_pb2.ModelPrice(
                price_id=price.price_id,
                model=price.model,
                currency=price.currency,
                input_usd_per_mtok=money_text(price.input_usd_per_mtok),
                cached_input_usd_per_mtok=money_text(price.cached_input_usd_per_mtok),
                output_usd_per_mtok=money_text(price.output_usd_per_mtok),
            )
            for price in change.prices
        ],
    )


def _summary(summary: UsageSummary) -> usage_pb2.UsageSummary:
    answer = usage_pb2.UsageSummary(
        lines=[
            usage_pb2.UsageLine(
                model=line.model,
                key_id=line.key_id,
                requests=line.requests,
                prompt_tokens=line.prompt_tokens,
                cached_tokens=line.cached_tokens,
                completion_tokens=line.completion_tokens,
                cost_usd=money_text(line.cost_usd),
            )
            for line in summary.lines
        ]
    )
    if summary.complete_through is not None:
        answer.complete_through.FromDatetime(summary.complete_through)
    return answer
