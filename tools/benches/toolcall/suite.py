"""Our own conformance suite (tests/toolcall): every case, in every split, by every driver.

The whole suite needs real engines; a run with `--samples` leaves those out.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from benches.report import Figure
from launcher.runenv import ROOT
from toolcheck_suite import cases, requests

FOLDER = "tests/toolcall"
ISSUE = re.compile(r"#\d+")
"""An upstream issue's number: the only reason for an expected failure."""


def figures(samples: int | None = None) -> list[Figure]:
    """Cases, checks, and what is expected to fail because upstream does."""
    checks = _run(["-m", "not engine"] if samples else [])
    failed = [check for check in checks if check.outcome == "failed"]
    expected = [check for check in checks if check.outcome == "expected failure"]
    skipped = [check for check in checks if check.outcome == "skipped"]
    for check in failed:
        print(f"suite: {check.name}: {check.message}")
    loaded = cases.load()
    named = {case.id for case in loaded for check in failed if case.id in check.name}
    return [
        Figure(
            "suite_cases_right",
            len(loaded) - len(named),
            f"of {len(loaded)}",
            f"= {len(loaded)}",
            not named,
            f"and {len(requests.load())} requests that must be refused",
        ),
        Figure(
            "suite_checks_passed",
            len(checks) - len(failed) - len(expected) - len(skipped),
            f"of {len(checks)}",
            "none failed",
            not failed and bool(checks),
            "without engines" if samples else "with real engines and the public endpoint",
        ),
        Figure(
            "suite_expected_failures",
            len(expected) + len(skipped),
            "",
            "only upstream's",
            not skipped and all(ISSUE.search(check.message) for check in expected),
            "; ".join(sorted({check.message for check in (*expected, *skipped)})),
        ),
    ]


class Check:
    """One test's outcome as pytest reports it."""

    def __init__(self, element: ElementTree.Element) -> None:
        self.name = f"{element.get('classname')}::{element.get('name')}"
        self.outcome, self.message = "passed", ""
        for child in element:
            text = " ".join((child.get("message") or "").split())[:200]
            if child.tag in ("failure", "error"):
                self.outcome, self.message = "failed", text
            elif child.tag == "skipped":
                is_expected = child.get("type") == "pytest.xfail"
                self.outcome = "expected failure" if is_expected else "skipped"
                self.message = text


def _run(arguments: list[str]) -> list[Check]:
    with tempfile.TemporaryDirectory(prefix="millrace-suite-") as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", FOLDER, "-q", f"--junitxml={report}"]
        subprocess.run([*command, *arguments], cwd=ROOT, stdout=sys.stderr, check=False)
        return [Check(element) for element in ElementTree.parse(report).iter("testcase")]
