"""Compiles the two builds of the kernel on first use and keeps them by what went into them.

The emulator needs g++ and an x86-64 CPU; the device library needs nvcc, and no GPU to be built.
Neither needs torch's headers: both have a C face.
"""

import fcntl
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sparse_mla.errors import BuildFailed, CompilerMissing, UnsupportedArchitecture

SOURCES = Path(__file__).parent
ARCHITECTURES = ("sm_90a", "sm_100a", "sm_103a")
EMULATOR_FILES = ("emulated.cpp", "emulator.cpp", "collectives.cpp")
# Punning through shared memory is what the kernel does; contraction would make results depend on
# the CPU.
HOST_FLAGS = (
    *("-std=c++17", "-O2", "-fno-strict-aliasing", "-ffp-contract=off"),
    *("-Wall", "-Wextra", "-Wno-unknown-pragmas"),
)
DEVICE_FLAGS = ("-std=c++17", "-O3")


@functools.cache
def emulator_library() -> Path:
    """The shared library of the emulator, compiled unless it is there."""
    if platform.machine() != "x86_64":
        raise UnsupportedArchitecture(f"a CPU of type {platform.machine()}", ["x86_64"])
    files = [str(SOURCES / "emulator" / name) for name in EMULATOR_FILES]
    compiler = find("g++", "the emulator")
    return _library("emulator", [compiler, *HOST_FLAGS, "-shared", "-fPIC", *files])


@functools.cache
def device_library(architecture: str) -> Path:
    """The shared library with the kernel for one architecture, compiled unless it is there."""
    return _library(
        f"device-{architecture}",
        [
            *(find("nvcc", "the CUDA kernel"), *DEVICE_FLAGS, code_flag(architecture)),
            *("-shared", "-Xcompiler", "-fPIC", str(SOURCES / "cuda" / "device.cu")),
        ],
    )


def cubin_command(architecture: str) -> list[str]:
    """The nvcc line, without its output, whose ptxas report says registers and spills."""
    return [
        *(find("nvcc", "the cubin"), *DEVICE_FLAGS, code_flag(architecture)),
        *("-cubin", "-Xptxas", "-v", str(SOURCES / "cuda" / "device.cu")),
    ]


def code_flag(architecture: str) -> str:
    """For one architecture alone: setmaxnreg and the like need code of their own."""
    return f"-gencode=arch=compute_{architecture.removeprefix('sm_')},code={architecture}"


def find(compiler: str, needed_for: str) -> str:
    """The compiler's path."""
    path = shutil.which(compiler)
    if path is None:
        raise CompilerMissing(compiler, needed_for)
    return path


def compile_to(command: Sequence[str], output: Path) -> str:
    """Runs a compiler line; returns what it reported."""
    done = subprocess.run(
        [*command, "-o", str(output)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildFailed(command, done.stderr + done.stdout)
    return done.stderr + done.stdout


def _library(name: str, command: list[str]) -> Path:
    folder = _cache() / f"{name}-{_digest(command)}"
    library = folder / "libsparse_mla.so"
    if library.exists():
        return library
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise BuildFailed(command, str(error)) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # processes started together compile once
        if not library.exists():
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                built = Path(scratch) / library.name
                compile_to(command, built)
                built.replace(library)
    return library


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "millrace" / "sparse_mla"


def _digest(command: Sequence[str]) -> str:
    digest = hashlib.sha256()
    version = subprocess.run([command[0], "--version"], capture_output=True, check=False).stdout
    digest.update(version + "\0".join(command).encode())
    for folder in ("cuda", "emulator"):
        for file in sorted((SOURCES / folder).iterdir()):
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:16]
