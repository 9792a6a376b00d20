"""`./tools/toolcheck URL --model M`: how well an OpenAI-compatible endpoint keeps tool calls."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

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
    if "bad_requests" in wanted:
        for bad in requests.load():
            if bad.is_extension and not args.exact_params:
                continue
            yield requests.run(client, bad, is_param_exact=args.exact_params)
    for probe in live.probes():
        if probe.group in wanted:
            yield probing.run(client, probe, args.max_tokens)
    if SCRIPTED in wanted:
        for case in cases.load():
            if args.format in (None, case.format):
                yield scripted.run(client, case)


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
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds for one answer")
    return parser


if __name__ == "__main__":
    sys.exit(main())
