"""Sends an admitted request to an upstream, and to another one while no byte has reached the
client.

An upstream that refuses or resets the connection, or says 502 or 503, is left for the next. At most
three attempts may reach an upstream; refused connections cost nothing and are repeated until the
failover window ends, so that a router which restarts is waited for.
"""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

import observe
from gateway import metrics
from gateway.admission import Admitted
from gateway.choose import Load, RouteSnapshot, Target, choose_target
from gateway.errors import NoCapacity, UpstreamBroken, UpstreamSilent
from gateway.settings import Settings
from wire import backoff, headers

log = observe.get_logger(__name__)

MOST_ATTEMPTS = 3
BUSY_STATUSES = (502, 503)
MOST_WAIT_S = 5.0
"""An upstream's Retry-After is followed up to this; three attempts then fit into the window."""
RETRY_AFTER_S = 2
CANCEL_TIMEOUT_S = 1.0
IDLE_CONNECTION_S = 4.0
"""Below the five seconds after which uvicorn closes an idle connection: the gateway closes
first."""


@dataclass(frozen=True)
class UpstreamReply:
    """The head of an upstream's answer; its body is still to be read."""

    target: Target
    response: aiohttp.ClientResponse


@dataclass
class Attempts:
    """What a request went through so far; `current` is the upstream that may be working on it."""

    started_at_s: float = field(default_factory=time.monotonic)
    current: Target | None = None
    tried: set[str] = field(default_factory=set)
    sent: int = 0
    may_have_run: bool = False
    wait_s: float = 0.0
    """What an upstream asked for before it is tried again."""


class Upstreams:
    """The gateway's connections to upstreams and its own view of their load."""

    def __init__(
        self, session: aiohttp.ClientSession, routes: RouteSnapshot, settings: Settings
    ) -> None:
        self._session = session
        self._routes = routes
        self._window_s = settings.failover_window_s
        connect_s, silence_s = settings.upstream_connect_timeout_s, settings.upstream_silence_s
        self._of_whole = aiohttp.ClientTimeout(total=None, sock_connect=connect_s)
        self._of_stream = aiohttp.ClientTimeout(
            total=None, sock_connect=connect_s, sock_read=silence_s
        )
        self._in_flight: dict[str, int] = defaultdict(int)
        self._failed_at_s: dict[str, float] = {}

    @asynccontextmanager
    async def send(self, admitted: Admitted, attempts: Attempts) -> AsyncIterator[UpstreamReply]:
        """The answer of the first upstream that gives one; raises NoCapacity when none does."""
        delays = backoff.delays_s(first_s=0.1, most_s=1.0)
        while True:
            target = self.choose(admitted, attempts)
            if target is None:
                self._check_may_wait(admitted, attempts)
                await asyncio.sleep(max(next(delays), attempts.wait_s))
                attempts.tried.clear()
                attempts.wait_s = 0.0
                continue
            attempts.current = target
            self._in_flight[target.instance] += 1
            try:
                response = await self._attempt(admitted, target, attempts)
                if response is not None:
                    try:
                        yield UpstreamReply(target, response)
                    finally:
                        response.release()  # closes the connection unless all of it was read
                    return
            finally:
                self._forget(target)
            attempts.current = None
            attempts.tried.add(target.instance)
            if attempts.sent >= MOST_ATTEMPTS:
                raise _no_capacity(admitted, attempts)

    async def cancel(self, target: Target, request_id: str) -> bool:
        """Asks an upstream to stop this request; False when it cannot be asked."""
        url = f"{target.url}/internal/requests/{request_id}/cancel"
        timeout = aiohttp.ClientTimeout(total=CANCEL_TIMEOUT_S)
        try:
            async with self._session.post(url, timeout=timeout, allow_redirects=False) as response:
                return response.status < 300
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    def choose(self, admitted: Admitted, attempts: Attempts) -> Target | None:
        """The upstream that this request would be sent to now, None when there is none."""
        candidates = self._routes.targets(admitted.body.model, admitted.caller.team_id)
        load = Load(self._in_flight, self._failed_at_s)
        return choose_target(candidates, attempts.tried, load, time.monotonic())

    def _check_may_wait(self, admitted: Admitted, attempts: Attempts) -> None:
        now_s = time.monotonic()
        is_over = now_s - attempts.started_at_s >= self._window_s
        model, team_id = admitted.body.model, admitted.caller.team_id
        if is_over or not self._routes.may_return(model, team_id, now_s):
            raise _no_capacity(admitted, attempts)

    async def _attempt(
        self, admitted: Admitted, target: Target, attempts: Attempts
    ) -> aiohttp.ClientResponse | None:
        with observe.tracer().start_as_current_span("gateway.upstream") as span:
            span.set_attribute("millrace.upstream", target.instance)
            response = await self._post(admitted, target, attempts)
            if response is not None:
                span.set_attribute("http.response.status_code", response.status)
            return response

    async def _post(
        self, admitted: Admitted, target: Target, attempts: Attempts
    ) -> aiohttp.ClientResponse | None:
        """One attempt; None when another upstream should be tried."""
        try:
            response = await self._session.post(
                target.url + admitted.endpoint.path,
                data=admitted.body.payload,
                headers=_headers(admitted),
                allow_redirects=False,
                timeout=self._of_stream if admitted.body.is_stream else self._of_whole,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            self._note_failure(admitted, target, "unreachable", error)
            return None
        except aiohttp.ServerTimeoutError as error:
            self._note_failure(admitted, target, "silent", error)
            raise UpstreamSilent("The model did not begin to answer in time.") from error
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            self._note_failure(admitted, target, "reset", error)
            attempts.sent += 1
            attempts.may_have_run = True
            return None
        except aiohttp.ClientError as error:
            self._note_failure(admitted, target, "broken", error)
            raise UpstreamBroken("The model's answer could not be read.") from error
        if response.status not in BUSY_STATUSES:
            metrics.UPSTREAM_ATTEMPTS.labels("answered").inc()
            return response
        attempts.sent += 1
        attempts.wait_s = min(_retry_after_s(response) or 0, MOST_WAIT_S)
        response.close()
        self._note_failure(admitted, target, "busy", None)
        return None

    def _note_failure(
        self, admitted: Admitted, target: Target, result: str, error: Exception | None
    ) -> None:
        self._failed_at_s[target.instance] = time.monotonic()
        metrics.UPSTREAM_ATTEMPTS.labels(result).inc()
        log.warning(
            "upstream_failed",
            request_id=admitted.request_id,
            upstream=target.instance,
            result=result,
            error=type(error).__name__ if error else None,
        )

    def _forget(self, target: Target) -> None:
        self._in_flight[target.instance] -= 1
        if not self._in_flight[target.instance]:
            del self._in_flight[target.instance]


def open_session() -> aiohttp.ClientSession:
    """The HTTP client for upstreams: no cookies, no decompression, bytes as they come."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_CONNECTION_S),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


def _headers(admitted: Admitted) -> dict[str, str]:
    """All that an upstream is told beside the body; nothing is copied from the client's headers."""
    sent = {
        "content-type": "application/json",
        "accept": "text/event-stream" if admitted.body.is_stream else "application/json",
        "accept-encoding": "identity",
        headers.MILLRACE_REQUEST_ID: admitted.request_id,
        headers.TEAM_ID: admitted.caller.team_id,
        headers.PRIORITY: "0",
        headers.DEADLINE_MS: admitted.deadline.left_ms_header(),
    }
    if admitted.session_id is not None:
        sent[headers.SESSION_ID] = admitted.session_id
    observe.inject(sent)
    return sent


def _retry_after_s(response: aiohttp.ClientResponse) -> int | None:
    value = response.headers.get("retry-after", "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 6 else None


def _no_capacity(admitted: Admitted, attempts: Attempts) -> NoCapacity:
    return NoCapacity(
        f"No capacity for the model `{admitted.body.model}` right now. Try again in a moment.",
        retry_after_s=max(RETRY_AFTER_S, math.ceil(attempts.wait_s)),
        may_have_run=attempts.may_have_run,
    )
