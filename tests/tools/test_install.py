"""Installing: a clear word where something is missing that the commands cannot get."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("bash", "cat", "cut", "dirname", "flock", "mkdir", "sha256sum")
MANIFESTS = (
    "tools/requirements.txt",
    "tools/engine.txt",
    "pyproject.toml",
    "proto/pyproject.toml",
    "libs/wire/pyproject.toml",
    "services/gateway/pyproject.toml",
    "kernels/pyproject.toml",
)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What the installer reads, and a folder `bin` of the programs that it may find."""
    for manifest in MANIFESTS:
        (tmp_path / manifest).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / manifest, tmp_path / manifest)
    (tmp_path / "tools/launcher").mkdir()
    shutil.copy(ROOT / "tools/launcher/install.sh", tmp_path / "tools/launcher")
    (tmp_path / "bin").mkdir()
    for program in NEEDED:
        found = shutil.which(program)
        assert found is not None
        (tmp_path / "bin" / program).symlink_to(found)
    return tmp_path


def test_without_python_it_says_which_one_is_needed(clone: Path) -> None:
    done = _install(clone)

    assert done.returncode != 0
    assert "Python 3.11 with venv is needed" in done.stderr


def test_another_python_is_not_taken(clone: Path) -> None:
    _script(clone / "bin/python3", "exit 1")  # what the version check of a 3.12 does

    done = _install(clone)

    assert done.returncode != 0
    assert "Python 3.11 with venv is needed" in done.stderr


def test_without_root_it_prints_the_line_that_installs_libibverbs(clone: Path) -> None:
    _pretend_installed(clone, loads_libibverbs=False)
    _script(clone / "bin/id", "echo 1000")
    _script(clone / "bin/apt-get", f"echo apt-get was run > {clone}/apt")

    done = _install(clone)

    assert done.returncode != 0
    assert "apt-get install -y --no-install-recommends libibverbs1" in done.stderr
    assert not (clone / "apt").exists()


def test_root_gets_libibverbs_installed(clone: Path) -> None:
    _pretend_installed(clone, loads_libibverbs=False)
    _script(clone / "bin/id", "echo 0")
    _script(clone / "bin/apt-get", f'echo "$@" >> {clone}/apt')

    done = _install(clone)

    assert done.returncode == 0, done.stderr
    calls = (clone / "apt").read_text().splitlines()
    assert len(calls) == 2
    assert calls[0].startswith("update")
    assert calls[1].endswith("libibverbs1")


def test_what_is_installed_already_is_not_installed_again(clone: Path) -> None:
    _pretend_installed(clone, loads_libibverbs=True)

    done = _install(clone)

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_a_changed_manifest_is_installed(clone: Path) -> None:
    _pretend_installed(clone, loads_libibverbs=True)
    with (clone / "tools/engine.txt").open("a") as manifest:
        manifest.write("another==1.0\n")

    done = _install(clone)

    assert "installing" in done.stderr


def _install(clone: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", "set -euo pipefail; . tools/launcher/install.sh"],
        cwd=clone,
        env={"PATH": str(clone / "bin"), "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        check=False,
    )


def _pretend_installed(clone: Path, *, loads_libibverbs: bool) -> None:
    """A .venv whose stamp fits; its python answers only the question for libibverbs."""
    (clone / ".venv/bin").mkdir(parents=True)
    _script(clone / ".venv/bin/python", f"exit {0 if loads_libibverbs else 1}")
    digest = subprocess.run(
        "sha256sum tools/requirements.txt tools/engine.txt pyproject.toml proto/pyproject.toml"
        " libs/*/pyproject.toml services/*/pyproject.toml kernels/pyproject.toml"
        " tools/launcher/install.sh",
        shell=True,
        cwd=clone,
        capture_output=True,
        text=True,
        check=True,
    )
    (clone / ".venv/millrace-installed").write_text(digest.stdout)


def _script(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
