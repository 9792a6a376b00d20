"""Runs the emulated kernel under ThreadSanitizer, with only a GPU's own ordering
(emulator/races.cpp).

What it cannot see: proxies and their fences, and the order among the lanes that ask for copies,
which a copy's completion passes on here and not on a GPU.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sparse_mla import build
from sparse_mla.errors import SparseMlaError

_WATCHED = ("-g", "-w", "-DSPARSE_MLA_RACES")
# The emulator itself is no part of what is watched; its copies must not become library calls, which
# the sanitizer would see.
_UNWATCHED = ("-fno-builtin", "-fno-tree-loop-distribute-patterns")
_REPORTED = 66
"""The sanitizer's exit status after a report."""


@dataclass(frozen=True)
class Watched:
    """One run of the program."""

    row_tiles: int = 1
    split: bool = False
    cluster_blocks: int = 2
    seed: int = 1


def build_program(folder: Path, sources: Path = build.SOURCES) -> Path:
    """Compiles the watched program into a folder."""
    emulator = sources / "emulator"
    compiler = [build.find("g++", "the race check"), "-std=c++17", "-O2", "-fno-strict-aliasing"]
    objects = []
    for name in ("emulator", "collectives"):
        objects.append(folder / f"{name}.o")
        build.compile_to(
            [*compiler, *_WATCHED, *_UNWATCHED, "-c", str(emulator / f"{name}.cpp")], objects[-1]
        )
    program = folder / "races"
    build.compile_to(
        [
            *compiler,
            *_WATCHED,
            "-fsanitize=thread",
            str(emulator / "races.cpp"),
            *map(str, objects),
        ],
        program,
    )
    return program


def first_race(program: Path, watched: Watched, timeout_s: float = 120) -> str | None:
    """The first report's summary, or None. A run that fails in another way raises."""
    arguments = [watched.row_tiles, int(watched.split), watched.cluster_blocks, watched.seed]
    done = subprocess.run(
        [str(program), *map(str, arguments)],
        env={**os.environ, "TSAN_OPTIONS": f"halt_on_error=1:exitcode={_REPORTED}"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode == _REPORTED:
        lines = [line for line in done.stderr.splitlines() if line.startswith("SUMMARY")]
        return lines[0] if lines else done.stderr[:500]
    if done.returncode:
        raise SparseMlaError(
            f"the watched program ended with {done.returncode}: {done.stdout[:500]}"
        )
    return None
