"""Any OpenAI-compatible URL, asked for whole and for streamed answers."""

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from toolcheck_suite.answers import Answer, ErrorReply, Fold, error_of, whole

TIMEOUT_S = 120.0
"""A small model on a laptop answers within seconds; a large one under load may take a minute."""


class Client:
    """One endpoint and one model."""

    def __init__(self, url: str, model: str, key: str | None, timeout_s: float = TIMEOUT_S) -> None:
        base = url.rstrip("/")
        self._url = (base if base.endswith("/v1") else f"{base}/v1") + "/chat/completions"
        self._model = model
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        # No proxy from the environment: a local address is asked more often than a public one.
        self._http = httpx.Client(headers=headers, timeout=timeout_s, trust_env=False)

    def whole(self, request: Mapping[str, Any]) -> Answer:
        """The answer as one body. An unreachable server is an error with status 0."""
        try:
            reply = self._http.post(self._url, json={"model": self._model, **request})
        except httpx.HTTPError as error:
            return Answer(error=ErrorReply(0, message=f"{type(error).__name__}: {error}"))
        body = _json(reply)
        if reply.status_code != 200:
            return Answer(error=error_of(reply.status_code, body))
        if not isinstance(body, dict):
            return Answer(malformed=(f"the body is no JSON object: {reply.text[:200]}",))
        return whole(body)

    def streamed(self, request: Mapping[str, Any]) -> Answer:
        """The answer folded from server-sent events."""
        body = {"model": self._model, **request, "stream": True}
        fold = Fold()
        try:
            with self._http.stream("POST", self._url, json=body) as reply:
                if reply.status_code != 200:
                    reply.read()
                    return Answer(error=error_of(reply.status_code, _json(reply)), is_stream=True)
                for line in _lines(reply):
                    if line.startswith(b"data:"):
                        fold.add(line[5:].strip().decode())
        except httpx.HTTPError as error:
            return Answer(error=ErrorReply(0, message=f"{type(error).__name__}: {error}"))
        return fold.answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()


def _lines(reply: httpx.Response) -> Iterator[bytes]:
    """Lines end at a line feed only: httpx's own end at U+2028 too, which JSON may hold."""
    rest = b""
    for piece in reply.iter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
    yield rest


def _json(reply: httpx.Response) -> Any:
    try:
        return reply.json()
    except ValueError:
        return reply.text
