"""An OpenAI-wire server that does what the request tells it to: something we attach and do not own.

The last message (or the prompt) is the script: words like `chunks=20 gap_ms=10 die_after=5`. It is
real HTTP on a real socket, made a deployment by its record in the registry. What it sends is
deterministic, so that a test can compare bytes.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from wire import headers

REQUEST_ID = "x-millrace-request-id"
PROMPT_TOKENS = 12
CACHED_TOKENS = 4


@dataclass(frozen=True)
class Script:
    """How to answer; the defaults are a good answer of five chunks."""

    chunks: int = 5
    gap_ms: int = 0
    hold_after: int = -1
    """Waits after this many chunks until released or cancelled."""
    die_after: int = -1
    """Cuts the connection after this many chunks; 0 cuts before the head."""
    error_after: int = -1
    """Sends an error event after this many chunks and closes."""
    status: int = 200
    retry_after: int = -1
    silent: int = 0
    """1: takes the request and never answers."""
    done: int = 1
    usage: int = 1
    cancel: int = 1
    """0: knows no cancel route, as an upstream that is not a Millrace router."""
    deaf: int = 0
    """1: says yes to a cancel and goes on."""
    crlf: int = 0
    html: int = 0
    """1: a bad status comes with a body that is no OpenAI error."""
    tells_prompt: int = 0
    """Counts the prompt in a header, as a Millrace router does."""
    split: int = 0
    """1: writes the stream byte by byte."""

    @classmethod
    def read(cls, text: str) -> "Script":
        """Words without `=` are ignored, so any text is a script."""
        words = (word.partition("=") for word in text.split())
        known = cls.__dataclass_fields__
        return cls(**{name: int(value) for name, _, value in words if name in known})


@dataclass
class Seen:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    raw: bytes
    body: dict[str, Any]
    script: Script
    sent_chunks: int = 0
    sent: bytes = b""
    """The body as it was written."""
    is_over: bool = False
    released: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def request_id(self) -> str:
        """The gateway's id of the request."""
        return self.headers.get(REQUEST_ID, "")


class ScriptedUpstream:
    """The server; `seen` holds every request in order of arrival."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.cancels: list[str] = []
        """Ids of the requests that somebody asked to cancel."""
        self.url = ""
        self.always: Script | None = None
        """Overrides every request's own script."""

    def last(self) -> Seen:
        """The newest request."""
        return self.seen[-1]

    def of(self, request_id: str) -> list[Seen]:
        """Every arrival of one request."""
        return [seen for seen in self.seen if seen.request_id == request_id]

    @asynccontextmanager
    async def serve(self, port: int = 0) -> AsyncIterator["ScriptedUpstream"]:
        """Serves on a port of 127.0.0.1, 0 for a free one, until left."""
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_post("/internal/requests/{id}/cancel", self._cancel)
        runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        host, bound = runner.addresses[0][:2]
        self.url = f"http://{host}:{bound}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _cancel(self, request: web.Request) -> web.Response:
        self.cancels.append(request.match_info["id"])
        found = [seen for seen in self.of(request.match_info["id"]) if not seen.is_over]
        if not found or not found[-1].script.cancel:
            return web.Response(status=404)
        if not found[-1].script.deaf:
            found[-1].cancelled.set()
        return web.json_response({"was_running": True})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw)
        script = self.always or Script.read(_text(body))
        seen = Seen(request.path, dict(request.headers), raw, body, script)
        self.seen.append(seen)
        try:
            return await self._answer(request, seen)
        finally:
            seen.is_over = True

    async def _answer(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        script = seen.script
        if script.silent:
            await seen.cancelled.wait()
            return web.Response(status=499)
        if script.die_after == 0:
            _cut(request)
        if script.status != 200:
            return _bad_status(seen)
        if seen.body.get("stream"):
            return await self._stream(request, seen)
        await self._work(seen, script.chunks)
        if seen.cancelled.is_set():
            return _cancelled(seen)
        answer = json.dumps(_whole(seen)).encode()
        seen.sent = answer
        return web.Response(body=answer, content_type="application/json")

    async def _stream(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        head = {"content-type": "text/event-stream; charset=utf-8"}
        if seen.script.tells_prompt:
            head[headers.PROMPT_TOKENS] = str(seen.script.tells_prompt)
        response = web.StreamResponse(headers=head)
        await response.prepare(request)
        script = seen.script
        for number in range(script.chunks):
            if number == script.die_after:
                _cut(request)
            if number == script.error_after:
                error = {
                    "error": {"message": "engine died", "type": "server_error", "code": "boom"}
                }
                await self._send(response, seen, error)
                return response
            if not await self._work_one(seen, number):
                break
            await self._send(response, seen, _chunk(seen, number))
            seen.sent_chunks += 1
        if seen.sent_chunks == script.die_after:
            _cut(request)
        await self._send(response, seen, _chunk(seen, None))
        wants_usage = (seen.body.get("stream_options") or {}).get("include_usage")
        if script.usage and wants_usage:
            await self._send(response, seen, _usage_chunk(seen))
        if script.done:
            await self._write(response, seen, _event(script, b"[DONE]"))
        await response.write_eof()
        return response

    async def _work(self, seen: Seen, chunks: int) -> None:
        for number in range(chunks):
            if not await self._work_one(seen, number):
                return
            seen.sent_chunks += 1

    async def _work_one(self, seen: Seen, number: int) -> bool:
        """Takes the time of one token; False when the request was cancelled."""
        if number == seen.script.hold_after:
            await _first_of(seen.released, seen.cancelled)
        elif seen.script.gap_ms:
            await asyncio.sleep(seen.script.gap_ms / 1000)
        return not seen.cancelled.is_set()

    async def _send(self, response: web.StreamResponse, seen: Seen, chunk: dict[str, Any]) -> None:
        # Spaces after the colons, as Python servers send; a relay may not count on their absence.
        payload = json.dumps(chunk, ensure_ascii=False).encode()
        await self._write(response, seen, _event(seen.script, payload))

    async def _write(self, response: web.StreamResponse, seen: Seen, event: bytes) -> None:
        seen.sent += event
        pieces = [bytes([byte]) for byte in event] if seen.script.split else [event]
        for piece in pieces:
            await response.write(piece)


def word(number: int) -> str:
    """The text of one chunk."""
    return f" wörd{number}"


def _text(body: dict[str, Any]) -> str:
    if "messages" in body:
        content = body["messages"][-1].get("content")
        return content if isinstance(content, str) else ""
    prompt = body["prompt"]
    return prompt if isinstance(prompt, str) else ""


def _event(script: Script, payload: bytes) -> bytes:
    end = b"\r\n\r\n" if script.crlf else b"\n\n"
    return b"data: " + payload + end


def _cut(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()
    raise asyncio.CancelledError


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _bad_status(seen: Seen) -> web.Response:
    script = seen.script
    headers = {} if script.retry_after < 0 else {"retry-after": str(script.retry_after)}
    if script.html:
        body = b"<html>no</html>"
        return web.Response(status=script.status, body=body, content_type="text/html")
    error = {"message": f"scripted {script.status}", "type": "t", "param": None, "code": "scripted"}
    # Odd spacing on purpose: the gateway must pass the very bytes on.
    seen.sent = json.dumps({"error": error}, indent=1).encode()
    return web.Response(
        status=script.status, body=seen.sent, headers=headers, content_type="application/json"
    )


def _usage(seen: Seen) -> dict[str, Any]:
    return {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": seen.sent_chunks,
        "total_tokens": PROMPT_TOKENS + seen.sent_chunks,
        "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS},
    }


def _head(seen: Seen, kind: str) -> dict[str, Any]:
    is_chat = seen.path.endswith("chat/completions")
    name = f"{'chat.completion' if is_chat else 'text_completion'}{kind if is_chat else ''}"
    return {"id": "cmpl-1", "object": name, "created": 1_700_000_000, "model": seen.body["model"]}


def _chunk(seen: Seen, number: int | None) -> dict[str, Any]:
    reason = "stop" if number is None else None
    if seen.path.endswith("chat/completions"):
        delta = {} if number is None else {"role": "assistant", "content": word(number)}
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": reason}
    else:
        choice = {
            "index": 0,
            "text": "" if number is None else word(number),
            "logprobs": None,
            "finish_reason": reason,
        }
    return {**_head(seen, ".chunk"), "choices": [choice], "usage": None}


def _usage_chunk(seen: Seen) -> dict[str, Any]:
    return {**_head(seen, ".chunk"), "choices": [], "usage": _usage(seen)}


def _cancelled(seen: Seen) -> web.Response:
    """What a Millrace router says: an error, with what was computed until then."""
    message = "The request was cancelled."
    error = {"message": message, "type": "invalid_request_error", "param": None}
    body = {"error": {**error, "code": "request_cancelled"}, "usage": _usage(seen)}
    return web.json_response(body, status=499)


def _whole(seen: Seen) -> dict[str, Any]:
    text = "".join(word(number) for number in range(seen.sent_chunks))
    if seen.path.endswith("chat/completions"):
        message = {"role": "assistant", "content": text}
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "stop"}
    else:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": "stop"}
    answer = {**_head(seen, ""), "choices": [choice]}
    return {**answer, "usage": _usage(seen)} if seen.script.usage else answer
