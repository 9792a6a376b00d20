"""The native library as Python sees it: entry points, their arguments, and which this processor
runs."""

import ctypes
import functools
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from nvfp4.errors import IsaUnsupported
from nvfp4.native.build import find_or_build

DTYPE_CODES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""As `nvfp4_dtype` in nvfp4.h."""


ARGUMENTS: dict[str, Any] = {"p": ctypes.c_void_p, "i": ctypes.c_int32, "l": ctypes.c_int64}


class Isa(Enum):
    """Instruction sets with a path of their own, the slowest first; the value is the entry's
    suffix."""

    PORTABLE = "portable"
    AVX2 = "avx2"
    AVX512 = "avx512"
    AMX = "amx"


class AttentionJob(ctypes.Structure):
    """`nvfp4_attention` in nvfp4.h, field by field."""

    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("queries", ctypes.c_void_p),
        ("indices", ctypes.c_void_p),
        ("counts", ctypes.c_void_p),
        ("sinks", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("lse", ctypes.c_void_p),
        ("heads", ctypes.c_int64),
        ("slots", ctypes.c_int64),
        ("span_heads", ctypes.c_int64),
        ("scale", ctypes.c_float),
        ("query_dtype", ctypes.c_int32),
    )


@dataclass(frozen=True)
class Library:
    """The loaded library and what this processor can run of it."""

    handle: ctypes.CDLL
    supported: tuple[Isa, ...]

    def isa(self, asked: Isa | None) -> Isa:
        """The one asked for, or the best; IsaUnsupported if this processor lacks it."""
        if asked is None:
            return self.supported[-1]
        if asked not in self.supported:
            raise IsaUnsupported(asked.value, ", ".join(isa.value for isa in self.supported))
        return asked

    def quantise(self, isa: Isa) -> "ctypes._NamedFuncPointer":
        """(values, dtype, rows, count, searches)."""
        return self._entry("nvfp4_quantise", _codec(isa), "pipli")

    def dequantise(self, isa: Isa) -> "ctypes._NamedFuncPointer":
        """(rows, values, dtype, count)."""
        return self._entry("nvfp4_dequantise", _codec(isa), "ppil")

    def attend(self, isa: Isa) -> "ctypes._NamedFuncPointer":
        """(job, first item, end item); not 0 when there is no memory for scratch."""
        return self._entry("nvfp4_attend", isa, "pll")

    def first_bad_index(self) -> "ctypes._NamedFuncPointer":
        """(indices, counts or None, tokens, slots, rows) to a position in indices, or -1."""
        return self._entry("nvfp4_first_bad_index", Isa.PORTABLE, "pplll", ctypes.c_int64)

    def _entry(
        self, name: str, isa: Isa, arguments: str, result: type = ctypes.c_int32
    ) -> "ctypes._NamedFuncPointer":
        return _bound(self.handle, f"{name}_{isa.value}", arguments, result)


@functools.cache
def load() -> Library:
    """Builds the library if it must be built, loads it and asks the processor what it can run."""
    handle = ctypes.CDLL(str(find_or_build()))
    ask = handle.nvfp4_supported_portable
    ask.restype = ctypes.c_uint32
    bits = ask()
    return Library(handle, tuple(isa for bit, isa in enumerate(Isa) if bits >> bit & 1))


@functools.cache
def _bound(
    handle: ctypes.CDLL, symbol: str, arguments: str, result: type
) -> "ctypes._NamedFuncPointer":
    """One entry point with its types."""
    function = handle[symbol]
    function.argtypes = [ARGUMENTS[letter] for letter in arguments]
    function.restype = result
    return function


def _codec(isa: Isa) -> Isa:
    """AMX multiplies matrices; packing and unpacking is AVX-512's."""
    return Isa.AVX512 if isa is Isa.AMX else isa
