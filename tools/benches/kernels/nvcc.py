"""nvcc for the bench where the machine has none: four wheels, unpacked once into .cache by pip.

They hold a compiler that runs without a GPU or a driver. Nothing of them is installed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from launcher.runenv import ROOT

VERSION = "13.0.88"
PACKAGES = ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-runtime")
CACHE = ROOT / ".cache" / f"nvcc-{VERSION}"
PROGRAMS = Path("nvidia/cu13/bin")


class NotFetched(RuntimeError):
    """The compiler cannot be had here; the message says which command failed."""


def put_on_path() -> str:
    """Makes nvcc findable on PATH, fetched if it is not there, and returns its version."""
    if shutil.which("nvcc") is None:
        if not CACHE.exists():
            _fetch()
        os.environ["PATH"] = f"{CACHE / PROGRAMS}:{os.environ['PATH']}"
    said = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    return said.split("release ", 1)[-1].splitlines()[0]


def _fetch() -> None:
    """All four or nothing: the folder appears when pip is done."""
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE.parent) as scratch:
        target = Path(scratch) / "nvcc"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command = [*pip, "--no-deps", "--target", str(target)]
        command += [f"{package}=={VERSION}" for package in PACKAGES]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotFetched(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
        target.rename(CACHE)
