"""JSON-Schema-Test-Suite (draft 7) through grammar and guard, as a response_format would use them.

An instance counts as accepted where the grammar and the guard both accept it: a valid one must pass
written compact and with blanks, an invalid one in neither. Every valid instance that is refused
must fall under a named reason.

Nothing is fetched for a client: a schema that refers to another document is refused as a request
(400). The suite wants its remote documents at hand, so these schemas are judged with the documents
bundled into them by `$id`, as a client would have to send them; they are counted apart, too.
"""

import collections
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.report import Figure
from benches.toolcall import fetch, wire
from toolcall.errors import InvalidToolRequest
from toolcall.guard import Guard
from toolcall.plan import OutputPlan, Structure
from toolcall.schema.check import check_schema
from toolcall.schema.normalise import normalise

DRAFT = "http://json-schema.org/draft-07/schema#"
PARAM = "response_format.json_schema.schema"
MOST_REFUSED_PERCENT = 2.0
REMOTES_AT = "http://localhost:1234"
FRACTION = "an integer written with a fraction or exponent"
BIG = "an integer of more digits than a grammar lets a model write"
MOST_DIGITS = 40


@dataclass(frozen=True)
class Test:
    """One instance under one schema."""

    name: str
    schema: Any
    instance: Any
    is_valid: bool


@dataclass(frozen=True)
class Verdict:
    """What became of it; `reason` says why a valid instance was refused."""

    is_accepted: bool
    reason: str = ""
    is_bundled: bool = False
    """True where the schema alone was refused, because it refers to another document."""


def figures(samples: int | None = None) -> list[Figure]:
    """Required tests against their targets; optional ones (formats, dialects) for information."""
    folder = fetch.schema_suite("draft7")
    return [
        *_part("", sorted(folder.glob("*.json")), samples, is_required=True),
        *_part("optional_", sorted(folder.glob("optional/**/*.json")), samples, is_required=False),
    ]


def _part(
    prefix: str, files: list[Path], samples: int | None, *, is_required: bool
) -> list[Figure]:
    tests = [test for file in files for test in _tests(file)][:samples]
    accepted: list[str] = []
    refused: collections.Counter[str] = collections.Counter()
    unnamed: list[str] = []
    valid = bundled = 0
    for test, verdict in _verdicts(tests):
        valid += test.is_valid
        bundled += test.is_valid and verdict.is_bundled
        if verdict.is_accepted and not test.is_valid:
            accepted.append(test.name)
        if test.is_valid and not verdict.is_accepted:
            refused[verdict.reason or "not named"] += 1
            if not verdict.reason:
                unnamed.append(test.name)
    if is_required:
        for name in accepted:
            print(f"schema suite: invalid accepted: {name}")
        for name in unnamed:
            print(f"schema suite: valid refused: {name}")
    percent = 100 * refused.total() / max(valid, 1)
    reasons = "; ".join(f"{count} {reason}" for reason, count in refused.most_common())
    found = [
        Figure(
            f"schema_suite_{prefix}invalid_accepted",
            len(accepted),
            f"of {len(tests) - valid}",
            "= 0" if is_required else "",
            not accepted or not is_required,
            "" if is_required else "formats without an own expression are annotations",
        ),
        Figure(
            f"schema_suite_{prefix}valid_refused",
            round(percent, 2),
            "%",
            f"< {MOST_REFUSED_PERCENT:g}, all named" if is_required else "",
            (percent < MOST_REFUSED_PERCENT and not unnamed) or not is_required,
            f"{refused.total()} of {valid}: {reasons or 'none'}",
        ),
    ]
    if is_required:
        found.append(
            Figure(
                "schema_suite_valid_refused_unless_bundled",
                bundled,
                f"of {valid}",
                "named",
                True,
                "their schemas refer to other documents, which is a 400 unless they are bundled",
            )
        )
    return found


def _tests(file: Path) -> Iterator[Test]:
    for group in json.loads(file.read_text()):
        schema = group["schema"]
        if isinstance(schema, dict):
            schema = {"$schema": DRAFT, **schema}
        for test in group["tests"]:
            name = f"{file.stem}: {group['description']}: {test['description']}"
            yield Test(name, schema, test["data"], test["valid"])


def _verdicts(tests: list[Test]) -> Iterator[tuple[Test, Verdict]]:
    """The tests of one schema stand together, so it is compiled once."""
    judge, schema = None, object()
    for test in tests:
        if test.schema is not schema:
            judge, schema = _judge(test.schema), test.schema
        assert judge is not None
        yield test, judge.verdict(test)


def _judge(source: Any) -> "_Judge":
    bundle = {"$schema": DRAFT, "allOf": [source], "definitions": _remotes()}
    for schema in (source, bundle):
        try:
            check_schema(schema, PARAM)
        except InvalidToolRequest:
            continue
        return _Judge(schema, is_bundled=schema is bundle)
    return _Judge(None, is_bundled=False)


def _remotes() -> dict[str, Any]:
    folder = fetch.schema_suite("draft7").parents[1] / "remotes"
    files = {str(file.relative_to(folder)): file for file in sorted(folder.rglob("*.json"))}
    return {
        name: {"$id": f"{REMOTES_AT}/{name}", **json.loads(file.read_text())}
        for name, file in files.items()
    }


class _Judge:
    """Grammar and guard of one schema; None is one that is a 400 (it has no instance at all)."""

    def __init__(self, source: Any, *, is_bundled: bool) -> None:
        self._is_refused = source is None
        if self._is_refused:
            return
        plan = OutputPlan(structure=Structure("json", schema=normalise(source, is_closed=False)))
        self._is_bundled = is_bundled
        self._guard = Guard(plan)
        self._compiled = wire.matcher(wire.grammar_of(plan, None).ebnf)

    def verdict(self, test: Test) -> Verdict:
        """Whether the instance gets through, and why not."""
        if self._is_refused:
            return Verdict(False)
        texts = (
            json.dumps(test.instance, ensure_ascii=False, separators=(",", ":")),
            json.dumps(test.instance),
        )
        passed = [self._passes(text) for text in texts]
        is_accepted = all(passed) if test.is_valid else any(passed)
        reason = "" if is_accepted else _reason(test.instance)
        return Verdict(is_accepted, reason, self._is_bundled)

    def _passes(self, text: str) -> bool:
        return wire.accepts(self._compiled, text) and self._guard.check_content(text) is None


def _reason(value: Any) -> str:
    """Why a valid instance may be refused; empty when there is no reason that we name."""
    numbers = list(_numbers(value))
    if any(isinstance(number, float) and number.is_integer() for number in numbers):
        return FRACTION
    return BIG if any(len(str(number)) > MOST_DIGITS for number in numbers) else ""


def _numbers(value: Any) -> Iterator[int | float]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _numbers(part)
