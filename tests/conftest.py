"""Fixtures for every test: real servers, real service processes, the whole stack."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The launcher is a tool, not an installed package; its own tests and the server fixtures import it.
sys.path.insert(0, str(ROOT / "tools"))

pytest_plugins = [
    "tests.fixtures.ports",
    "tests.fixtures.servers",
    "tests.fixtures.processes",
    "tests.fixtures.stack",
]
