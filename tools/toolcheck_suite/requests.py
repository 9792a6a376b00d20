"""Requests that must be refused with a 400 that names the field (R7), from bad_requests.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from toolcheck_suite.cases import FOLDER, read_yaml, tool
from toolcheck_suite.client import Client
from toolcheck_suite.report import Outcome, outcome
from toolcheck_suite.rules import Broken

GROUP = "bad_requests"
FAULTLESS: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16}


@dataclass(frozen=True)
class BadRequest:
    """A body without its model, and the path of the fault in it."""

    id: str
    source: str
    body: Mapping[str, Any]
    param: str
    is_extension: bool = False
    """True for a field of vLLM's, which other servers may ignore."""


@cache
def load() -> tuple[BadRequest, ...]:
    """Every entry of the file. `parameters` is short for one tool `f` with these parameters."""
    content = read_yaml(FOLDER / "bad_requests.yaml")
    return tuple(_entry(written) for written in content["requests"])


def run(client: Client, bad: BadRequest, *, is_param_exact: bool) -> Outcome:
    """Sends it. Another `param` is a remark, or a failure where the server promises ours."""
    answer = client.whole(bad.body)
    error = answer.error
    if error is None or error.status != 400:
        broken = Broken("R7", f"status 400, param {bad.param}", answer.shown())
        return outcome(GROUP, bad.id, bad.body, [broken])
    if error.param == bad.param:
        return outcome(GROUP, bad.id, bad.body)
    if is_param_exact:
        broken = Broken("R7", f"param {bad.param}", answer.shown())
        return outcome(GROUP, bad.id, bad.body, [broken])
    return outcome(GROUP, bad.id, bad.body, (), [f"param is {error.param}, ours is {bad.param}"])


def _entry(written: Mapping[str, Any]) -> BadRequest:
    body = {**FAULTLESS, **written.get("body", {})}
    if "parameters" in written:
        body["tools"] = [tool("f", written["parameters"])]
    return BadRequest(
        written["id"],
        str(written["source"]),
        body,
        written["param"],
        written.get("is_extension", False),
    )
