"""Usage messages as they come from the stream, turned into events that can be booked.

Invariant: every byte that was sent is kept. What decodes and makes sense becomes an `Event`; all
else becomes a `DeadLetter` with its bytes and the reason, so a bad event can't hold up the good
ones beside it and can still be looked at and sent again.
"""

import hashlib
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from google.protobuf.message import DecodeError

from billing.errors import UnusableEvent
from millrace.v1 import usage_pb2

MAX_TEXT_CHARS = 512
MAX_TOKENS = 10**12
"""Of one event. Far above any request; below it no amount can outgrow NUMERIC(38, 15)."""


@dataclass(frozen=True)
class Event:
    """One usage event; `payload` is its canonical encoding, `payload_sha256` tells copies apart."""

    request_id: uuid.UUID
    seq: int
    team_id: str
    key_id: str
    model: str
    cluster: str
    pool: str
    endpoint: str
    occurred_at: datetime
    outcome: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    is_exact: bool
    is_stream: bool
    payload_sha256: bytes
    payload: bytes


@dataclass(frozen=True)
class DeadLetter:
    """Bytes that could not be booked, and why."""

    payload: bytes
    reason: str

    @property
    def payload_sha256(self) -> bytes:
        """The key under which it is kept: a redelivery adds nothing."""
        return hashlib.sha256(self.payload).digest()


@dataclass(frozen=True)
class Incoming:
    """What one or more messages contained."""

    events: list[Event]
    dead_letters: list[DeadLetter]


def read_messages(payloads: list[bytes]) -> Incoming:
    """Decodes messages of the usage stream; never raises for what they contain."""
    incoming = Incoming([], [])
    for payload in payloads:
        try:
            batch = usage_pb2.UsageBatch.FromString(payload)
        except DecodeError as error:
            reason = f"expected a millrace.v1.UsageBatch, got {len(payload)} other bytes: {error}"
            incoming.dead_letters.append(DeadLetter(payload, reason))
            continue
        if not batch.events:
            incoming.dead_letters.append(DeadLetter(payload, "the batch has no events"))
        for message in batch.events:
            try:
                incoming.events.append(_read_event(message))
            except UnusableEvent as error:
                encoded = message.SerializeToString(deterministic=True)
                incoming.dead_letters.append(DeadLetter(encoded, str(error)))
    return incoming


def _read_event(message: usage_pb2.UsageEvent) -> Event:
    payload = message.SerializeToString(deterministic=True)
    _check_tokens(message)
    return Event(
        request_id=_request_id(message.request_id),
        seq=message.seq,
        team_id=_text("team_id", message.team_id, is_required=True),
        key_id=_text("key_id", message.key_id, is_required=True),
        model=_text("model", message.model, is_required=True),
        cluster=_text("cluster", message.cluster),
        pool=_text("pool", message.pool),
        endpoint=_text("endpoint", message.endpoint),
        occurred_at=_occurred_at(message),
        outcome=_outcome(message.outcome),
        prompt_tokens=message.prompt_tokens,
        cached_tokens=message.cached_tokens,
        completion_tokens=message.completion_tokens,
        is_exact=message.is_exact,
        is_stream=message.is_stream,
        payload_sha256=hashlib.sha256(payload).digest(),
        payload=payload,
    )


def _request_id(value: str) -> uuid.UUID:
    try:
        return uuid.UUID(value)
    except ValueError as error:
        raise UnusableEvent(f"request_id must be a UUID, got {value[:64]!r}") from error


def _text(name: str, value: str, *, is_required: bool = False) -> str:
    if is_required and not value:
        raise UnusableEvent(f"{name} is empty")
    if len(value) > MAX_TEXT_CHARS or "\0" in value:
        raise UnusableEvent(
            f"{name} must be at most {MAX_TEXT_CHARS} characters without NUL, got {value[:64]!r}"
        )
    return value


def _occurred_at(message: usage_pb2.UsageEvent) -> datetime:
    if not message.HasField("occurred_at"):
        raise UnusableEvent("occurred_at is missing")
    try:
        return message.occurred_at.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise UnusableEvent(f"occurred_at is no time: {message.occurred_at}") from error


def _outcome(value: usage_pb2.RequestOutcome.ValueType) -> str:
    try:
        return usage_pb2.RequestOutcome.Name(value).removeprefix("REQUEST_OUTCOME_").lower()
    except ValueError:
        # A newer gateway may know more outcomes; the tokens are owed all the same.
        return f"outcome_{value}"


def _check_tokens(message: usage_pb2.UsageEvent) -> None:
    if message.cached_tokens > message.prompt_tokens:
        raise UnusableEvent(
            f"cached_tokens {message.cached_tokens} exceed prompt_tokens {message.prompt_tokens},"
            " which include them"
        )
    if max(message.prompt_tokens, message.completion_tokens) > MAX_TOKENS:
        raise UnusableEvent(f"more than {MAX_TOKENS} tokens in one event")
