"""A small OpenAI server that knows every right answer, and makes the one mistake it is told to.

It stands for the servers that the tool judges, so nothing of the platform is in it: answers come
from the cases and from the instances of live_schemas.yaml.
"""

import copy
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from toolcheck_suite import cases, live, requests, scripted

Message = dict[str, Any]
Mistake = Callable[[dict[str, Any], Message], Message]
"""From request and right reply to the wrong one. A reply is {message, finish} or {error}."""
MARKER = re.compile(r"\[\[case:(\S+) ")


def right_reply(request: dict[str, Any]) -> Message:
    """What a server without faults answers."""
    body = {name: value for name, value in request.items() if name not in ("model", "stream")}
    for bad in requests.load():
        if bad.body == body:
            return error(400, "invalid_request_error", bad.param)
    if found := MARKER.search(json.dumps(request["messages"])):
        return scripted_reply(found.group(1))
    choice = request.get("tool_choice", "auto")
    tools = [tool["function"] for tool in request.get("tools", ())]
    if isinstance(choice, dict):
        tools = [tool for tool in tools if tool["name"] == choice["function"]["name"]]
        return reply(calls=[call(tool) for tool in tools], finish="stop")
    wants_call = choice == "required" or (choice == "auto" and "Use the tools" in str(request))
    if tools and wants_call:
        is_parallel = request.get("parallel_tool_calls", True)
        return reply(calls=[call(tool) for tool in (tools if is_parallel else tools[:1])])
    return reply(content=structured(request.get("response_format")) or "Hello.")


def scripted_reply(case_id: str) -> Message:
    """What the case of this id must come to."""
    (case,) = [case for case in cases.load() if case.id == case_id]
    expected = scripted.final(case)
    if expected.fault is not None:
        code = scripted.ERROR_CODES.get(expected.fault, scripted.OTHER_ERROR_CODE)
        return error(500, code, None)
    calls = [
        {"name": one.name, "arguments": one.text or json.dumps(one.arguments)}
        for one in expected.calls
    ]
    return reply(expected.content, calls, expected.finish, expected.reasoning)


def reply(
    content: str = "",
    calls: list[Any] | None = None,
    finish: str | None = None,
    reasoning: str = "",
) -> Message:
    """A reply of these parts."""
    message: Message = {"role": "assistant", "content": content or None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{index}", "type": "function", "function": function}
            for index, function in enumerate(calls)
        ]
    return {"message": message, "finish": finish or ("tool_calls" if calls else "stop")}


def error(status: int, code: str, param: str | None) -> Message:
    """An error reply."""
    return {"status": status, "error": {"message": "no", "code": code, "param": param}}


def call(tool: dict[str, Any]) -> dict[str, str]:
    """A call of the tool with arguments that fit."""
    known = {json.dumps(entry["schema"]): entry["fits"] for entry in live.live_schemas()}
    needs_city = "city" in tool.get("parameters", {}).get("properties", {})
    default = {"city": "Paris"} if needs_city else {}
    arguments = known.get(json.dumps(tool.get("parameters")), default)
    return {"name": tool["name"], "arguments": json.dumps(arguments)}


def structured(wanted: dict[str, Any] | None) -> str:
    """Content that fits a response_format."""
    if (wanted or {}).get("type") in (None, "text"):
        return ""
    name = wanted.get("json_schema", {}).get("name")
    known = {"answer": {"answer": "yes", "confidence": "high"}, "items": {"items": [1, 2]}}
    return json.dumps(known.get(name, {}))


def events_of(answer: Message) -> Iterator[Message]:
    """The right stream of a reply: one delta for each part, arguments in two."""
    message = answer["message"]
    yield delta({"role": "assistant", "content": ""})
    for name in ("reasoning_content", "content"):
        if message.get(name):
            yield delta({name: message[name]})
    for index, one in enumerate(message.get("tool_calls", ())):
        function = one["function"]
        first = {"index": index, "id": one["id"], "type": "function"}
        begun = {"name": function["name"], "arguments": ""}
        yield delta({"tool_calls": [{**first, "function": begun}]})
        for part in (function["arguments"][:3], function["arguments"][3:]):
            yield delta({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    yield delta({}, answer["finish"])


def delta(content: Message, finish: str | None = None) -> Message:
    """One chunk."""
    choice = {"index": 0, "delta": content, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice]}


@contextmanager
def serving(
    mistake: Mistake = lambda _, answer: answer,
    stream_mistake: Callable[[list[Message]], list[Any]] = lambda events: [*events, "[DONE]"],
) -> Iterator[str]:
    """The URL of a server that makes this mistake."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet for each reply: two would wait for an acknowledgement

        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            answer = mistake(request, copy.deepcopy(right_reply(request)))
            if "error" in answer and (answer["status"] == 400 or not request.get("stream")):
                self._send(answer["status"], json.dumps({"error": answer["error"]}))
            elif request.get("stream"):
                events = [answer] if "error" in answer else stream_mistake([*events_of(answer)])
                lines = [one if isinstance(one, str) else json.dumps(one) for one in events]
                self._send(200, "".join(f"data: {line}\n\n" for line in lines))
            else:
                choice = {"index": 0, "message": answer["message"]}
                choice["finish_reason"] = answer["finish"]
                self._send(200, json.dumps({"id": "chatcmpl-1", "choices": [choice]}))

        def _send(self, status, text):
            content = text.encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
