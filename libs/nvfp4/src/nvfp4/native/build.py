"""Compiles the native library once, and finds it again: a file is named for exactly what it was
made of.

The name holds the digest of sources and flags and that of the compiler, so changed sources never
meet an old library. Looked for first beside this file, for images without a compiler: `python -m
nvfp4.native.build` puts it there. Else it is made in the user's cache folder at the first native
call (about three seconds). One library serves every processor of a machine type: library.py chooses
the instruction set when it runs.
"""

import fcntl
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nvfp4.errors import BuildFailed, NoCompiler

HERE = Path(__file__).parent
SOURCES = HERE / "src"
COMPILERS = ("g++", "c++", "clang++")
LIMIT_S = 300
"""For one compiler run; it takes about a second."""

COMMON_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-Wall")
# GCC 12 warns of its own AVX-512 headers (bug 105593).
QUIET_FLAGS = ("-Wno-maybe-uninitialized",)
EXACT_FLAGS = ("-ffp-contract=off",)
"""The codec's: a fused multiply-add would move bytes. Attention is free to fuse."""
LINK_FLAGS = ("-shared", "-nodefaultlibs", "-Wl,--no-undefined", "-lm", "-lc", "-lgcc")
"""No C++ runtime: the library needs nothing that a slim image lacks."""

AVX2 = ("-mavx2", "-mfma", "-mf16c")
AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma", "-mf16c")
AMX = (*AVX512, "-mavx512vbmi", "-mavx512bf16", "-mamx-tile", "-mamx-bf16")


@dataclass(frozen=True)
class Unit:
    """One source compiled for one instruction set."""

    source: str
    isa: str
    flags: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The source's place."""
        return str(SOURCES / self.source)


PORTABLE_UNITS = (
    Unit("support.cpp", "portable"),
    Unit("codec_portable.cpp", "portable", EXACT_FLAGS),
    Unit("attention.cpp", "portable"),
)
X86_UNITS = (
    Unit("codec_portable.cpp", "avx2", (*AVX2, *EXACT_FLAGS)),
    Unit("attention.cpp", "avx2", AVX2),
    Unit("codec_avx512.cpp", "avx512", (*AVX512, *EXACT_FLAGS)),
    Unit("attention.cpp", "avx512", AVX512),
    Unit("attention_amx.cpp", "amx", AMX),
)


def find_or_build() -> Path:
    """The library for these sources; NoCompiler or BuildFailed if it is neither there nor made."""
    sources = source_digest()
    beside = next(_made_of(sources, HERE), None)
    if beside is not None:
        return beside
    folder = cache_folder()
    try:
        compiler = find_compiler()
    except NoCompiler:
        cached = next(_made_of(sources, folder), None)
        if cached is None:
            raise
        return cached
    path = folder / file_name(sources, compiler)
    if not path.exists():
        with _lock(compiler, folder):
            if not path.exists():  # another process may have made it meanwhile
                build(compiler, path)
    return path


def build(compiler: tuple[str, ...], path: Path) -> None:
    """Compiles and links to `path`; who looks at it sees nothing or all of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = tempfile.TemporaryDirectory(dir=path.parent, prefix="building-")
    except OSError as error:
        raise BuildFailed(shlex.join(compiler), str(error)) from error
    with folder as name:
        objects = [str(Path(name) / f"{unit.isa}-{unit.source}.o") for unit in units()]
        compile_one = (*compiler, *COMMON_FLAGS, *QUIET_FLAGS, "-c")
        commands = [
            (*compile_one, *unit.flags, f"-DNVFP4_ISA={unit.isa}", unit.path, "-o", target)
            for unit, target in zip(units(), objects, strict=True)
        ]
        _run_all(commands)
        linked = Path(name) / path.name
        _run((*compiler, *objects, *LINK_FLAGS, "-o", str(linked)))
        linked.replace(path)


def units() -> tuple[Unit, ...]:
    """What this machine type gets."""
    is_x86 = platform.machine() in ("x86_64", "AMD64")
    return PORTABLE_UNITS + (X86_UNITS if is_x86 else ())


@functools.cache
def source_digest() -> str:
    """Digest of everything but the compiler that decides what the library does."""
    digest = hashlib.sha256(repr((COMMON_FLAGS, LINK_FLAGS, units())).encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def find_compiler() -> tuple[str, ...]:
    """$CXX, or the first of the usual names on PATH."""
    given = shlex.split(os.environ.get("CXX", ""))
    for command in [given] if given else [[name] for name in COMPILERS]:
        if shutil.which(command[0]):
            return tuple(command)
    raise NoCompiler(", ".join(COMPILERS), f"{HERE} or {cache_folder()}")


def file_name(sources: str, compiler: tuple[str, ...]) -> str:
    """Name of the library that this compiler makes of these sources."""
    try:
        command = [*compiler, "--version"]
        version = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildFailed(shlex.join(compiler), str(error)) from error
    made_by = hashlib.sha256(shlex.join(compiler).encode() + version).hexdigest()[:8]
    return f"libnvfp4-{sources}-{made_by}.so"


def cache_folder() -> Path:
    """$NVFP4_CACHE_DIR, or `millrace/nvfp4` in the user's cache folder."""
    given = os.environ.get("NVFP4_CACHE_DIR")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millrace" / "nvfp4"


def main() -> int:
    """Puts the library beside this file, for machines without a compiler, and prints its path."""
    compiler = find_compiler()
    path = HERE / file_name(source_digest(), compiler)
    build(compiler, path)
    print(path)  # noqa: T201  the command's result
    return 0


def _made_of(sources: str, folder: Path) -> Iterator[Path]:
    return iter(sorted(folder.glob(f"libnvfp4-{sources}-*.so")))


@contextmanager
def _lock(compiler: tuple[str, ...], folder: Path) -> Iterator[None]:
    """One build at a time in a folder: processes started together would each compile."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = (folder / "lock").open("w")
    except OSError as error:
        raise BuildFailed(shlex.join(compiler), str(error)) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run_all(commands: Sequence[tuple[str, ...]]) -> None:
    """Runs the commands, as many at a time as this process has cores; one that fails is told."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(_run, commands))


def _run(command: tuple[str, ...]) -> None:
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildFailed(shlex.join(command), str(error)) from error
    if done.returncode:
        raise BuildFailed(shlex.join(command), done.stdout.strip())


if __name__ == "__main__":
    sys.exit(main())
