"""`./tools/bench toolcall [--only NAME ...] [--samples N]`: every judge of tool calls, or some.

suite           our own conformance cases, in every split
schema_suite    JSON-Schema-Test-Suite, draft 7
scenarios       tool-eval-bench's 97 scenarios through a real router
bfcl            BFCL's expected calls, written, accepted and parsed back
sampled_calls   a real engine samples calls of fifty schemas, through the whole platform
costs           grammars, parser, masks
"""

import argparse
import importlib
import sys
from typing import Any

from benches.report import Figure, finish

JUDGES = ("suite", "schema_suite", "scenarios", "bfcl", "sampled_calls", "costs")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="./tools/bench toolcall",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", choices=JUDGES, metavar="NAME", help="a judge")
    parser.add_argument("--samples", type=int, help="fewer of whatever a judge repeats")
    args = parser.parse_args()
    figures: list[Figure] = []
    for name in args.only or JUDGES:
        print(f"{name} ...", file=sys.stderr, flush=True)
        # One judge needs vLLM, another the judge's own package: each is loaded when its turn comes.
        judge: Any = importlib.import_module(f"benches.toolcall.{name}")
        figures += judge.figures(args.samples)
    return finish("toolcall", figures)


if __name__ == "__main__":
    sys.exit(main())
