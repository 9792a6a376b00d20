"""tool-eval-bench 3.0.0: its 97 scenarios, mocks and evaluators against our router.

An engine that replays good answers (`transcripts/`) stands behind a real router. So every point
lost is ours: a call dropped or changed, a grammar that refuses a right answer, a stream that the
judge's client cannot read.
"""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

from benches.report import Figure
from benches.toolcall.cluster import SERVED_NAME, replaying_router

SCENARIOS = 97
CONCURRENCY = 4


def figures(samples: int | None = None) -> list[Figure]:
    """The judge's own score, and the scenarios that earned all their points."""
    with replaying_router() as url:
        result = _run(url, samples)
    scores = result["scores"]
    rows = scores["scenario_results"]
    passed = [row for row in rows if row["points"] == 2 and not row.get("safety_violation")]
    for row in rows:
        if row not in passed:
            print(f"scenarios: {row['scenario_id']}: {row['points']} points: {row['summary']}")
    asked = samples or SCENARIOS
    return [
        Figure(
            "tool_eval_bench_score",
            scores["final_score"],
            "of 100",
            "= 100",
            scores["final_score"] == 100 and not scores.get("excluded_scenarios"),
            f"tool-eval-bench {result['tool_eval_bench_version']}: {scores['rating']}",
        ),
        Figure(
            "tool_eval_bench_scenarios_passed",
            len(passed),
            f"of {len(rows)}",
            f"= {asked}",
            len(passed) == len(rows) == asked,
            f"{scores['total_points']} of {scores['max_points']} points,"
            f" {sum(row['turn_count'] for row in rows)} turns",
        ),
    ]


def _run(url: str, samples: int | None) -> dict[str, Any]:
    from tool_eval_bench.api import run_benchmark
    from tool_eval_bench.evals.scenarios import ALL_SCENARIOS_WITH_HARDMODE

    home = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="millrace-judge-") as folder:
        os.chdir(folder)  # what the judge may write stays there
        try:
            return asyncio.run(
                run_benchmark(
                    model=SERVED_NAME,
                    base_url=url,
                    backend="vllm",
                    scenarios=list(ALL_SCENARIOS_WITH_HARDMODE)[:samples],
                    concurrency=CONCURRENCY,
                    persist=False,
                    probe_engine=False,
                    wire_format="openai",
                )
            )
        finally:
            os.chdir(home)
