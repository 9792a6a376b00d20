"""One request to a live model, asked whole and streamed, and judged by the rules."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from toolcheck_suite.answers import Answer
from toolcheck_suite.client import Client
from toolcheck_suite.report import Outcome, outcome
from toolcheck_suite.rules import differences, judge

MOST_TOKENS = 512
"""Enough for every probe's answer with some reasoning; it ends a small model's endless string."""


@dataclass(frozen=True)
class Probe:
    """A request that every model must answer by the rules, whatever it says."""

    group: str
    name: str
    request: Mapping[str, Any]


def run(
    client: Client,
    probe: Probe,
    most_tokens: int = MOST_TOKENS,
    extra: Mapping[str, Any] = MappingProxyType({}),
) -> Outcome:
    """Asks both ways. Undecided when a limit cut the answer, or when the server is not greedy.

    `extra` are fields that every request gets.
    """
    # Greedy, so that the streamed answer can be compared with the whole one.
    request = {"temperature": 0, "max_tokens": most_tokens, **extra, **probe.request}
    whole, streamed = client.whole(request), client.streamed(request)
    broken = judge(request, whole)
    broken += [one for one in judge(request, streamed) if one not in broken]
    remarks = []
    is_undecided = whole.finish == "length"
    differing = [] if _is_same_cut(whole, streamed) else differences(whole, streamed)
    if differing:
        if client.whole(request).comparable() == whole.comparable():
            broken += differing
        else:
            remarks.append("the same greedy request gave two answers; streaming was not compared")
            is_undecided = True
    if whole.finish == "length":
        remarks.append("the answer was cut at max_tokens: what it would have been is not known")
    return outcome(probe.group, probe.name, request, broken, remarks, is_undecided=is_undecided)


def _is_same_cut(whole: Answer, streamed: Answer) -> bool:
    """A cut stream may hold the beginning of a last call, which a whole answer leaves out."""
    if whole.finish != "length" or len(streamed.calls) != len(whole.calls) + 1:
        return False
    rest = {**streamed.comparable(), "calls": whole.comparable()["calls"]}
    return rest == whole.comparable() and streamed.comparable()["calls"][:-1] == rest["calls"]
