"""Between an upstream's HTTP answer and the ASGI messages to a client."""

import asyncio
import contextlib

import aiohttp
from starlette.types import Message

from gateway.errors import UpstreamBroken
from gateway.upstreams import UpstreamReply

READ_TO_END_S = 0.5
"""For an upstream to close a stream after its last event; the client has its answer already."""
MAX_ANSWER_BYTES = 64 << 20
"""Of a whole (not streamed) answer, which is held in memory."""

Headers = list[tuple[bytes, bytes]]


async def read_whole(reply: UpstreamReply) -> bytes:
    """The whole body of an answer."""
    parts, size_bytes = [], 0
    async for data in reply.response.content.iter_any():
        parts.append(data)
        size_bytes += len(data)
        if size_bytes > MAX_ANSWER_BYTES:
            raise UpstreamBroken(f"The model's answer was longer than {MAX_ANSWER_BYTES} bytes.")
    return b"".join(parts)


async def read_to_end(reply: UpstreamReply) -> None:
    """Takes what follows the last event, so that the connection can be used again."""
    with contextlib.suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(READ_TO_END_S):
            async for _ in reply.response.content.iter_any():
                pass


def kept_headers(reply: UpstreamReply) -> Headers:
    """The upstream's headers that concern the client."""
    found = reply.response.headers
    names = ("content-type", "retry-after")
    return [(name.encode(), found[name].encode("latin-1")) for name in names if name in found]


def stream_headers(reply: UpstreamReply) -> Headers:
    """The headers of an event stream."""
    # Both keep proxies between here and the client from collecting the stream.
    quick = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
    return [*kept_headers(reply), *quick]


def whole(status: int, headers: Headers, content: bytes) -> list[Message]:
    """A response in one piece: its head and its body."""
    length = (b"content-length", str(len(content)).encode())
    return [head(status, [*headers, length]), body(content, more=False)]


def head(status: int, headers: Headers) -> Message:
    """The start of a response."""
    return {"type": "http.response.start", "status": status, "headers": headers}


def body(content: bytes, *, more: bool) -> Message:
    """A piece of a response's body."""
    return {"type": "http.response.body", "body": content, "more_body": more}
