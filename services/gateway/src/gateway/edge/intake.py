"""Reads a request from the socket: key before body, body never beyond its limit."""

import asyncio
import time

from google.protobuf.timestamp_pb2 import Timestamp
from starlette.requests import ClientDisconnect, Request

from gateway.admission import Admitted
from gateway.edge.state import Gateway
from gateway.errors import BodyTooLarge, BodyTooSlow, ModelUnknown
from gateway.keys import Caller, check_key
from gateway.request_body import CheckedBody, Endpoint, check_body, session_id
from wire.deadlines import Deadline

SESSION_HEADER = "x-session-id"
DISCARD_BYTES = 64 << 20
DISCARD_S = 5.0
"""A client that sends too much is read on for this long, and gets its 413 instead of a reset
connection."""


def check_caller(gateway: Gateway, request: Request) -> Caller:
    """Who calls; raises KeyRefused, TeamSuspended or NotReady."""
    authorization = request.headers.get("authorization")
    raw = None if authorization is None else authorization.encode("latin-1")
    return check_key(raw, gateway.directory)


async def admit(
    gateway: Gateway, request: Request, endpoint: Endpoint, request_id: str
) -> Admitted:
    """Checks a completion request from its key to its model."""
    gateway.check_ready()
    caller = check_caller(gateway, request)
    settings = gateway.settings
    raw = await read_body(request, settings.max_body_bytes, settings.body_timeout_s)
    body = check_body(raw, endpoint)
    if not gateway.routes.is_known(body.model, caller.team_id, time.monotonic()):
        raise ModelUnknown(
            f"The model `{body.model[:100]}` does not exist or you do not have access to it. "
            "GET /v1/models lists those you can use."
        )
    admitted_at = Timestamp()
    admitted_at.FromNanoseconds(time.time_ns())
    return Admitted(
        request_id=request_id,
        caller=caller,
        endpoint=endpoint,
        body=body,
        session_id=_session_id(request, caller, body),
        admitted_at=admitted_at,
        deadline=Deadline.after(settings.request_timeout_s),
    )


async def read_body(request: Request, most_bytes: int, timeout_s: float) -> bytes:
    """The whole body; raises BodyTooLarge while reading, whatever the client announced."""
    parts: list[bytes] = []
    size_bytes = 0
    try:
        async with asyncio.timeout(timeout_s):
            async for part in request.stream():
                size_bytes += len(part)
                if size_bytes > most_bytes:
                    break
                parts.append(part)
            else:
                return b"".join(parts)
    except TimeoutError:
        raise BodyTooSlow(f"The request did not arrive within {timeout_s:g} seconds.") from None
    parts.clear()
    raise BodyTooLarge(
        f"Expected a request of at most {most_bytes} bytes, got more. Send less.",
        is_unread=not await _discard(request),
    )


async def _discard(request: Request) -> bool:
    """Reads the rest without keeping it; True when all of it came."""
    size_bytes = 0
    try:
        async with asyncio.timeout(DISCARD_S):
            async for part in request.stream():
                size_bytes += len(part)
                if size_bytes > DISCARD_BYTES:
                    return False
    except (TimeoutError, ClientDisconnect):
        return False
    return True


def _session_id(request: Request, caller: Caller, body: CheckedBody) -> str | None:
    hint = request.headers.get(SESSION_HEADER) or body.session_hint
    return None if not hint else session_id(caller.team_id, hint)
