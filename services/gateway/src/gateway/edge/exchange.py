"""One admitted request between its client and an upstream, from the forward to the last byte.

Invariants: the usage event is in the spool before the client can see the end (`finish`); a stream
ends in `[DONE]` or in one error event, never in silence. A client that leaves does not end the
exchange: the upstream is told to stop and read on until its usage is known.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from enum import Enum

import aiohttp
import orjson
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

import observe
from gateway import metrics
from gateway.admission import Admitted
from gateway.choose import Target
from gateway.edge import messages, replies
from gateway.edge.account import (
    CLIENT_DISCONNECTED,
    COMPLETED,
    GATEWAY_LOST,
    UPSTREAM_FAILED,
    Account,
    Outcome,
)
from gateway.edge.state import Gateway
from gateway.errors import GatewayError, NoCapacity, Stopping, UpstreamBroken, UpstreamSilent
from gateway.relay import Passage, StreamEnd, is_openai_error
from gateway.upstreams import Attempts, UpstreamReply
from wire import headers

log = observe.get_logger(__name__)

STOP_WAIT_S = 1.0
"""How long a cancelled upstream is still read when the process stops or the deadline has passed,
and how long a client may take to read an error event; a stop may take five seconds in all."""


class Abandoned(Enum):
    """Why nobody waits for the answer any more."""

    CLIENT_GONE = "client_gone"
    STOPPING = "stopping"
    DEADLINE = "deadline"


class Exchange(Response):
    """A response: only there `receive` (is the client gone?) and `send` are both at hand."""

    def __init__(self, gateway: Gateway, admitted: Admitted) -> None:
        super().__init__()
        self._gateway = gateway
        self._admitted = admitted
        self._attempts = Attempts()
        self._account: Account
        self._abandoned: Abandoned | None = None
        self._timer = asyncio.timeout(None)
        self._is_timed = False
        self._has_started = False

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Serves the request; raises a GatewayError only while nothing was sent."""
        likely = self._gateway.upstreams.choose(self._admitted, self._attempts)
        self._account = Account(self._gateway.spool, self._admitted, likely)
        self._gateway.running.add(self._abandon_for_stop)
        watch = self._gateway.tasks.create_task(self._watch_client(receive))
        deadline = asyncio.get_running_loop().call_later(
            self._admitted.deadline.left_s(), self._abandon, Abandoned.DEADLINE, STOP_WAIT_S
        )
        try:
            with metrics.IN_FLIGHT.track_inprogress():
                await self._serve(send)
        finally:
            watch.cancel()
            deadline.cancel()
            self._gateway.running.discard(self._abandon_for_stop)
            self._settle(UPSTREAM_FAILED)  # still open when cancelled: what was counted is billed

    def _abandon_for_stop(self) -> None:
        """The process ends: stop the upstream, tell the client."""
        self._abandon(Abandoned.STOPPING, STOP_WAIT_S)

    async def _serve(self, send: Send) -> None:
        try:
            async with self._timer, self._timed():
                if self._abandoned is not None:  # in the moment between admission and here
                    raise TimeoutError
                async with self._gateway.upstreams.send(self._admitted, self._attempts) as reply:
                    await self._relay(reply, send)
        except NoCapacity as error:
            if error.may_have_run:
                self._settle(UPSTREAM_FAILED)
            else:
                self._account.release()
            raise
        except (UpstreamBroken, UpstreamSilent, Stopping) as error:
            await self._fail(send, error)
        except aiohttp.ServerTimeoutError:
            await self._fail(send, UpstreamSilent("The model was silent for too long."))
        except aiohttp.ClientError:
            await self._fail(send, _stopped_early())
        except TimeoutError:
            await self._end_early(send)

    async def _relay(self, reply: UpstreamReply, send: Send) -> None:
        status = reply.response.status
        metrics.FIRST_BYTE_SECONDS.labels(self._admitted.body.model).observe(self._account.age_s)
        if status != 200:
            await self._relay_refusal(reply, send)
        elif self._admitted.body.is_stream:
            await self._relay_stream(reply, send)
        else:
            await self._relay_whole(reply, send)

    async def _relay_stream(self, reply: UpstreamReply, send: Send) -> None:
        self._account.meter.told(reply.response.headers.get(headers.PROMPT_TOKENS, ""))
        async for data in reply.response.content.iter_any():
            passage = self._account.meter.feed(data)
            self._account.note()
            if passage.end is not None:
                await self._end_stream(reply, passage, send)
                await messages.read_to_end(reply)
                return
            if passage.forward and self._abandoned is None:
                if not self._has_started:
                    await self._start(send, messages.head(200, messages.stream_headers(reply)))
                await send(messages.body(passage.forward, more=True))
        raise _stopped_early()

    async def _end_stream(self, reply: UpstreamReply, passage: Passage, send: Send) -> None:
        self._check_still_wanted()
        last = [messages.body(passage.forward + passage.last, more=False)]
        if not self._has_started:
            self._has_started = True
            last.insert(0, messages.head(200, messages.stream_headers(reply)))
        outcome = COMPLETED if passage.end is StreamEnd.DONE else UPSTREAM_FAILED
        await finish(lambda: self._settle(outcome), send, last)

    async def _relay_whole(self, reply: UpstreamReply, send: Send) -> None:
        body = await messages.read_whole(reply)
        self._account.meter.feed_whole(body)
        self._check_still_wanted()
        self._has_started = True
        answer = messages.whole(200, messages.kept_headers(reply), body)
        await finish(lambda: self._settle(COMPLETED), send, answer)

    async def _relay_refusal(self, reply: UpstreamReply, send: Send) -> None:
        """Passes an upstream's error on unchanged; its 401 and 403 are about us, not the client."""
        status = reply.response.status
        body = await messages.read_whole(reply)
        self._account.meter.feed_error(body)
        self._check_still_wanted()  # what a cancelled upstream says is not about the client
        if status in (401, 403) or status < 400 or not is_openai_error(body):
            log.error("upstream_answered_oddly", status=status, upstream=reply.target.instance)
            raise UpstreamBroken(f"The model's server answered with an odd status ({status}).")
        if status >= 500 or self._account.meter.usage is not None:
            self._settle(UPSTREAM_FAILED)
        else:
            self._account.release()
        head, rest = messages.whole(status, messages.kept_headers(reply), body)
        await self._start(send, head)
        await send(rest)

    async def _start(self, send: Send, head: Message) -> None:
        self._has_started = True
        await send(head)

    async def _end_early(self, send: Send) -> None:
        """The timer ran out after nobody waited any more."""
        if self._attempts.current is None and not self._attempts.may_have_run:
            self._account.release()  # it was still waiting for an upstream
        if self._abandoned is Abandoned.CLIENT_GONE:
            self._settle(CLIENT_DISCONNECTED)
        else:
            await self._fail(send, self._why_abandoned())

    def _check_still_wanted(self) -> None:
        """A cancelled upstream ends like a finished one; no client must take that for an answer."""
        if self._abandoned in (Abandoned.STOPPING, Abandoned.DEADLINE):
            raise self._why_abandoned()

    def _why_abandoned(self) -> GatewayError:
        if self._abandoned is Abandoned.STOPPING:
            return Stopping("This gateway is shutting down. Send the request again.")
        limit_s = self._gateway.settings.request_timeout_s
        return UpstreamSilent(f"The answer took longer than {limit_s:g} seconds.")

    async def _fail(self, send: Send, error: GatewayError) -> None:
        """Ends with an error: an event in a running stream, else for the error table."""
        if isinstance(error, UpstreamSilent) and self._abandoned is None:
            self._abandon(Abandoned.DEADLINE, 0.0)
        if not self._has_started:
            self._settle(UPSTREAM_FAILED)
            raise error
        event = b"data: " + orjson.dumps(replies.error_object(error)) + b"\n\n"
        last = [messages.body(event, more=False)]
        with contextlib.suppress(TimeoutError):  # a client that does not read
            async with asyncio.timeout(STOP_WAIT_S):
                await finish(lambda: self._settle(UPSTREAM_FAILED), send, last)

    def _settle(self, outcome: Outcome) -> None:
        match self._abandoned:
            case Abandoned.CLIENT_GONE:
                outcome = CLIENT_DISCONNECTED
            case Abandoned.STOPPING:
                outcome = GATEWAY_LOST
        self._account.settle(outcome, self._attempts.current)

    async def _watch_client(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._abandon(Abandoned.CLIENT_GONE, self._gateway.settings.cancel_wait_s)

    def _abandon(self, reason: Abandoned, wait_s: float) -> None:
        if self._abandoned is not None or not self._account.is_open:
            return
        self._abandoned = reason
        target = self._attempts.current
        if target is None:
            self._give_up_in(0.0)
            return
        self._give_up_in(wait_s)
        self._gateway.tasks.create_task(self._cancel(target))

    async def _cancel(self, target: Target) -> None:
        if not await self._gateway.upstreams.cancel(target, self._admitted.request_id):
            self._give_up_in(0.0)

    def _give_up_in(self, wait_s: float) -> None:
        """Moves the timer, unless it has run out or the exchange has ended meanwhile."""
        if self._is_timed and not self._timer.expired():
            self._timer.reschedule(asyncio.get_running_loop().time() + wait_s)

    @contextlib.asynccontextmanager
    async def _timed(self) -> AsyncIterator[None]:
        self._is_timed = True
        try:
            yield
        finally:
            self._is_timed = False


async def finish(settle: Callable[[], None], send: Send, last: list[Message]) -> None:
    """The end of every answer: first the usage event on disk, then the last bytes."""
    settle()
    for message in last:
        await send(message)


def _stopped_early() -> UpstreamBroken:
    return UpstreamBroken("The model stopped answering before the end.")
