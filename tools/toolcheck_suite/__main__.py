"""`./tools/toolcheck URL --model M`: how well an OpenAI-compatible endpoint keeps tool calls."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from toolcheck_suite import cases, live, probing, report, requests, scripted
from toolcheck_suite.client import TIMEOUT_S, Client
from toolcheck_suite.report import Outcome

GROUPS = ("bad_requests", "choices", "schemas", "structures", "history")
SCRIPTED = "scripted"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when no rule was broken, else 1. The last line of the output is JSON."""
    args = _parser().parse_args(arguments)
    outcomes: list[Outcome] = []
    with Client(args.url, args.model, args.key, args.timeout) as client:
        for outcome in _outcomes(client, args):
            outcomes.append(outcome)
            sys.stderr.write("F" if outcome.state == "failed" else ".")
            sys.stderr.flush()
    sys.stderr.write("\n")
    if args.json is not None:
        found = report.as_json(outcomes, args.url, args.model)
        args.json.write_text(json.dumps(found, ensure_ascii=False, indent=1))
    print(report.text(outcomes))
    counts = report.counts(outcomes)
    # Nothing judged is not a pass: a mistyped group or an empty folder must not look green.
    is_good = counts["failed"] == 0 and counts["passed"] > 0
    line = {"toolcheck": args.url, "model": args.model, **counts, "ok": is_good}
    print(json.dumps(line))
    return 0 if is_good else 1


def _outcomes(client: Client, args: argparse.Namespace) -> Iterator[Outcome]:
    wanted = args.only or [*GROUPS, *([SCRIPTED] if args.scripted else [])]
    with ThreadPoolExecutor(args.concurrency) as pool:
        yield from pool.map(lambda check: check(), _checks(client, args, wanted))


def _checks(
    client: Client, args: argparse.Namespace, wanted: Sequence[str]
) -> Iterator[Callable[[], Outcome]]:
    if "bad_requests" in wanted:
        for bad in requests.load():
            if not bad.is_extension or args.exact_params:
                yield partial(requests.run, client, bad, is_param_exact=args.exact_params)
    for probe in live.probes():
        if probe.group in wanted:
            yield partial(probing.run, client, probe, args.max_tokens, args.extra)
    if SCRIPTED in wanted:
        for case in cases.load():
            if args.format in (None, case.format):
                yield partial(scripted.run, client, case)


def _fields(text: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise argparse.ArgumentTypeError(f"expected a JSON object, got {text!r}")
    return fields


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got {text!r}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./tools/toolcheck", description=__doc__)
    parser.add_argument("url", help="base URL, with or without /v1")
    parser.add_argument("--model", required=True, help="the model's name at this endpoint")
    parser.add_argument("--key", help="API key")
    parser.add_argument(
        "--only",
        action="append",
        choices=[*GROUPS, SCRIPTED],
        help="run this group only; may be given more than once",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every check there")
    parser.add_argument(
        "--scripted",
        action="store_true",
        help="also replay every case: the endpoint's engine must understand the markers",
    )
    parser.add_argument("--format", help="with --scripted: only the cases of this wire format")
    parser.add_argument(
        "--exact-params",
        action="store_true",
        help="a 400 that names another field than ours is a failure, not a remark",
    )
    parser.add_argument(
        "--max-tokens", type=int, default=probing.MOST_TOKENS, help="limit of each live answer"
    )
    parser.add_argument(
        "--extra",
        type=_fields,
        default={},
        metavar="JSON",
        help="fields for each live request, such as"
        """ '{"chat_template_kwargs": {"enable_thinking": false}}'""",
    )
    parser.add_argument(
        "--concurrency", type=_positive, default=1, help="checks that are made at the same time"
    )
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds for one answer")
    return parser


if __name__ == "__main__":
    sys.exit(main())
