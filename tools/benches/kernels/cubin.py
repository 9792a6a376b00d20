"""What the compilers made of the decode kernel, without a GPU: registers, spills, memory and
opcodes.

nvcc compiles it, ptxas reports, and cuobjdump (Triton brings one) disassembles.
"""

import collections
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sparse_mla import build
from sparse_mla.errors import CompilerMissing


@dataclass(frozen=True)
class Variant:
    """One instance of the kernel: so many tiles of 16 query rows, one or two halves a
    probability."""

    row_tiles: int
    split: bool
    registers: int
    """of every thread at the start"""
    highest_register: int
    """named in the code: above `registers` where a role was given more"""
    spilled_bytes: int
    stack_bytes: int
    opcodes: Mapping[str, int]

    def count(self, prefix: str) -> int:
        """Instructions whose name begins so."""
        return sum(number for name, number in self.opcodes.items() if name.startswith(prefix))


def compiled(architecture: str) -> list[Variant]:
    """Every variant for one architecture."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        report = build.compile_to(build.cubin_command(architecture), cubin)
        done = subprocess.run(
            [_disassembler(), "-sass", str(cubin)],
            # nvdisasm, which it calls, lies beside it.
            env={**os.environ, "PATH": f"{Path(_disassembler()).parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
        )
    return [
        _variant(name, resources, done.stdout) for name, resources in _resources(report).items()
    ]


def _disassembler() -> str:
    found = shutil.which("cuobjdump")
    if found is None and (triton := importlib.util.find_spec("triton")) and triton.origin:
        bundled = Path(triton.origin).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        found = str(bundled) if bundled.exists() else None
    if found is None:
        raise CompilerMissing("cuobjdump", "reading the kernel's instructions")
    return found


def _resources(report: str) -> dict[str, tuple[int, int, int]]:
    """{mangled name: (registers, spilled bytes, stack bytes)} from `ptxas -v`."""
    found, name, stack, spilled = {}, "", 0, 0
    for line in report.splitlines():
        if entry := re.search(r"Compiling entry function '(\w+)'", line):
            name = entry[1]
        elif memory := re.search(r"(\d+) bytes stack frame, (\d+) .* stores, (\d+) .* loads", line):
            stack, spilled = int(memory[1]), int(memory[2]) + int(memory[3])
        elif used := re.search(r"Used (\d+) registers", line):
            found[name] = (int(used[1]), spilled, stack)
    return found


def _variant(name: str, resources: tuple[int, int, int], sass: str) -> Variant:
    code = sass.split(f"Function : {name}\n", 1)[1].split("Function : ", 1)[0]
    arguments = re.search(r"ILi(\d)ELb(\d)E", name)
    assert arguments, f"{name} is no instance of the kernel"
    operation = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)
    registers, spilled, stack = resources
    return Variant(
        row_tiles=int(arguments[1]),
        split=arguments[2] == "1",
        registers=registers,
        highest_register=max(int(number) for number in re.findall(r"\bR(\d+)\b", code)),
        spilled_bytes=spilled,
        stack_bytes=stack,
        opcodes=collections.Counter(operation.findall(code)),
    )
