"""What came out, for people and, as the last line, for machines."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from toolcheck_suite.rules import RULES, Broken

State = Literal["passed", "failed", "undecided"]
SENT_CHARACTERS = 600
"""A request with many tools is cut in the report; --json holds all of it."""


@dataclass(frozen=True)
class Outcome:
    """One check: `sent` is the request's body, `remarks` are worth reading but break no rule."""

    group: str
    name: str
    state: State
    sent: Mapping[str, Any]
    broken: tuple[Broken, ...] = ()
    remarks: tuple[str, ...] = ()


def outcome(
    group: str,
    name: str,
    sent: Mapping[str, Any],
    broken: Sequence[Broken] = (),
    remarks: Sequence[str] = (),
    *,
    is_undecided: bool = False,
) -> Outcome:
    """Failed when a rule is broken, undecided when there was nothing to judge."""
    state: State = "failed" if broken else "undecided" if is_undecided else "passed"
    return Outcome(group, name, state, sent, tuple(broken), tuple(remarks))


def counts(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """How many checks ended how."""
    found = Counter(one.state for one in outcomes)
    return {state: found[state] for state in ("passed", "failed", "undecided")}


def text(outcomes: Sequence[Outcome]) -> str:
    """The report: a table of groups, each failure with what was sent, expected and came."""
    groups = list(dict.fromkeys(one.group for one in outcomes))
    lines = [f"{'group':<18} {'passed':>7} {'failed':>7} {'undecided':>10}"]
    for group in groups:
        found = counts([one for one in outcomes if one.group == group])
        lines.append(
            f"{group:<18} {found['passed']:>7} {found['failed']:>7} {found['undecided']:>10}"
        )
    for one in outcomes:
        if one.state == "failed":
            lines += ["", *_failure(one)]
    remarks = [f"  {one.group}/{one.name}: {said}" for one in outcomes for said in one.remarks]
    if remarks:
        lines += ["", "Worth knowing (no rule broken):", *remarks]
    return "\n".join(lines)


def as_json(outcomes: Sequence[Outcome], url: str, model: str) -> dict[str, Any]:
    """Everything that is known, for --json."""
    return {
        "url": url,
        "model": model,
        **counts(outcomes),
        "checks": [
            {
                "group": one.group,
                "name": one.name,
                "state": one.state,
                "sent": one.sent,
                "broken": [vars(broken) for broken in one.broken],
                "remarks": list(one.remarks),
            }
            for one in outcomes
        ],
    }


def _failure(one: Outcome) -> list[str]:
    sent = json.dumps(one.sent, ensure_ascii=False)
    if len(sent) > SENT_CHARACTERS:
        sent = sent[:SENT_CHARACTERS] + " ..."
    lines = [f"FAILED {one.group}/{one.name}", f"  sent      {sent}"]
    for broken in one.broken:
        lines += [
            f"  expected  {broken.expected}",
            f"  came      {broken.came}",
            f"  breaks    {broken.rule}: {RULES[broken.rule]}",
        ]
    return lines
