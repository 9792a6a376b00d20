"""The library is made once for what it is made of, and what cannot be made is said."""

import shutil
import stat
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from nvfp4 import errors
from nvfp4.native import build


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A copy of the sources of which only the portable ones are built, and an empty cache."""
    folder = tmp_path / "src"
    shutil.copytree(build.SOURCES, folder)
    monkeypatch.setattr(build, "SOURCES", folder)
    monkeypatch.setattr(build, "HERE", tmp_path)
    monkeypatch.setattr(build, "units", lambda: (build.Unit("support.cpp", "portable"),))
    monkeypatch.setenv("NVFP4_CACHE_DIR", str(tmp_path / "cache"))
    build.source_digest.cache_clear()
    yield folder
    build.source_digest.cache_clear()


@pytest.fixture
def no_compiler(monkeypatch):
    """A PATH on which none of the usual compilers lies."""
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)


def test_a_library_is_built_once_and_again_when_a_source_changes(sources):
    first = build.find_or_build()
    made_at = first.stat().st_mtime_ns

    assert build.find_or_build() == first
    assert first.stat().st_mtime_ns == made_at
    build.source_digest.cache_clear()
    with (sources / "support.cpp").open("a") as file:
        file.write("// changed\n")
    assert build.find_or_build() != first
    assert [each.name for each in first.parent.iterdir() if "building" in each.name] == []


def test_another_compiler_makes_another_library(sources, monkeypatch):
    first = build.find_or_build()

    monkeypatch.setenv("CXX", "g++ -O1")

    assert build.find_or_build() != first


def test_without_library_and_compiler_both_are_asked_for(sources, no_compiler):
    with pytest.raises(errors.NoCompiler, match=r"a compiled nvfp4 library in .*cache.*g\+\+"):
        build.find_or_build()


def test_without_a_compiler_what_was_built_before_is_taken(sources, monkeypatch):
    built = build.find_or_build()

    monkeypatch.setenv("PATH", "/nonexistent")

    assert build.find_or_build() == built


def test_a_library_beside_the_sources_needs_no_compiler(sources, monkeypatch, capsys):
    assert build.main() == 0
    placed = capsys.readouterr().out.strip()

    monkeypatch.setenv("PATH", "/nonexistent")

    assert str(build.find_or_build()) == placed
    assert placed.startswith(str(build.HERE))


def test_an_old_library_is_not_taken_for_changed_sources(sources, monkeypatch):
    build.find_or_build()
    build.source_digest.cache_clear()
    (sources / "support.cpp").write_text("int other;\n")

    monkeypatch.setenv("PATH", "/nonexistent")

    with pytest.raises(errors.NoCompiler):
        build.find_or_build()


def test_what_the_compiler_said_is_in_the_error(sources):
    (sources / "support.cpp").write_text("#error no such processor\n")

    with pytest.raises(errors.BuildFailed, match="no such processor"):
        build.find_or_build()


def test_a_compiler_that_does_not_run_is_an_error(sources, monkeypatch):
    monkeypatch.setenv("CXX", "false")

    with pytest.raises(errors.BuildFailed, match="'false'"):
        build.find_or_build()


def test_a_cache_that_cannot_be_written_is_an_error(sources, tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("NVFP4_CACHE_DIR", str(blocked / "cache"))

    with pytest.raises(errors.BuildFailed, match="Not a directory"):
        build.find_or_build()


def test_processes_started_together_compile_once(sources, monkeypatch):
    """What holds the lock has made the library when it lets go."""
    built, together = [], threading.Barrier(4)
    file_name = build.file_name(build.source_digest(), build.find_compiler())
    monkeypatch.setattr(build, "file_name", lambda *_: (together.wait(), file_name)[1])
    monkeypatch.setattr(build, "build", lambda _, path: (built.append(path), path.touch()))

    with ThreadPoolExecutor(4) as pool:
        found = {each.result() for each in [pool.submit(build.find_or_build) for _ in range(4)]}

    assert [*found] == built


def test_the_cache_is_the_users_alone(sources):
    built = build.find_or_build()

    assert stat.S_IMODE(built.parent.stat().st_mode) == 0o700


def test_no_instruction_set_shares_code_with_another():
    """A weak symbol would be merged: one copy, maybe with instructions that a processor lacks."""
    listing = subprocess.run(
        ["nm", "--defined-only", build.find_or_build()], capture_output=True, text=True, check=True
    ).stdout

    kinds = {line.split()[1] for line in listing.splitlines()}
    assert "T" in kinds
    assert not kinds & set("WVu")
