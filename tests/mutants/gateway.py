"""The gateway with one rule broken."""

import asyncio
from collections.abc import Callable

from nats.aio.client import Client
from starlette.types import Message, Send

from gateway import keys, publish, request_body, upstreams
from gateway.edge import exchange
from gateway.request_body import Json
from millrace.v1 import directory_pb2, usage_pb2
from wire import ids

LATE_S = 0.2
"""How late an event comes that is written "in the background, after the response"."""


def usage_after_response() -> None:
    """Writes the usage event once the client has its answer."""

    async def finish(settle: Callable[[], None], send: Send, last: list[Message]) -> None:
        for message in last:
            await send(message)
        await asyncio.sleep(LATE_S)
        settle()

    exchange.finish = finish


def forward_internal_fields() -> None:
    """Sends on whatever the client wrote."""

    def forward_all(body: Json) -> Json:
        return body

    request_body.without_internal_fields = forward_all


def publish_new_id_on_retry() -> None:
    """Gives every attempt an id of its own, so that JetStream cannot tell a repetition."""
    publish_once = publish.publish_once

    async def publish_under_new_id(nc: Client, batch_id: str, payload: bytes) -> None:
        batch = usage_pb2.UsageBatch.FromString(payload)
        batch.batch_id = ids.new_request_id()
        await publish_once(nc, batch.batch_id, batch.SerializeToString())

    publish.publish_once = publish_under_new_id


def ignore_revocations() -> None:
    """Keeps the keys of the first snapshot."""
    apply = keys.DirectorySnapshot.apply

    def apply_once(self: keys.DirectorySnapshot, update: directory_pb2.DirectoryUpdate) -> None:
        if update.is_snapshot:
            apply(self, update)

    keys.DirectorySnapshot.apply = apply_once  # type: ignore[method-assign]


def one_attempt() -> None:
    """Never tries a second upstream."""
    upstreams.MOST_ATTEMPTS = 0


MUTANTS: dict[str, Callable[[], None]] = {
    patch.__name__: patch
    for patch in (
        usage_after_response,
        forward_internal_fields,
        publish_new_id_on_retry,
        ignore_revocations,
        one_attempt,
    )
}
