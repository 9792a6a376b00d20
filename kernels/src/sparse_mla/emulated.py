"""The kernel's body on the CPU: a fiber for each thread of a cluster, for tests and benches.

Slow (about half a second for a token of 2,048 slots) and exact about what it models; see
emulator/emulator.h.
"""

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path

from sparse_mla import build
from sparse_mla.call import Decode, DecodeCall
from sparse_mla.checks import check, check_blocks
from sparse_mla.errors import EmulationFailed

_ERROR_BYTES = 1024


class _Counters(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in ("loaded_bytes", "copies", "mmas", "matrix_loads", "matrix_conflicts")
    )


@dataclass(frozen=True)
class Counters:
    """What the emulated clusters did."""

    loaded_bytes: int
    """bytes of the cache that bulk copies read"""
    copies: int
    mmas: int
    matrix_loads: int
    matrix_conflicts: int
    """passes that ldmatrix needed beyond one per matrix, from bank conflicts"""


def decode(
    step: Decode,
    cluster_blocks: int,
    *,
    seed: int = 0,
    library: Path | None = None,
    is_checked: bool = True,
) -> Counters:
    """Runs a step on the emulator, filling its `out` and `lse`.

    A seed other than 0 shuffles the order of warps, lanes and copies. Another library than the
    package's is for mutants; without the host's check, the kernel meets what a GPU's caller may
    give it.
    """
    check_blocks("cluster_blocks", cluster_blocks)
    if is_checked:
        check(step)
    counters = _Counters()
    text = ctypes.create_string_buffer(_ERROR_BYTES)
    call = step.to_call(cluster_blocks)
    emulate = _load(library or build.emulator_library()).sparse_mla_emulate
    if emulate(
        ctypes.byref(call), ctypes.c_uint32(seed), ctypes.byref(counters), text, _ERROR_BYTES
    ):
        raise EmulationFailed(text.value.decode())
    return Counters(**{field[0]: getattr(counters, field[0]) for field in _Counters._fields_})


def shared_bytes(row_tiles: int, split: bool) -> int:
    """Shared memory of a block; the struct has the same size in both builds."""
    return int(conversions().sparse_mla_shared_bytes(row_tiles, int(split)))


def conversions() -> ctypes.CDLL:
    """The library with its single conversions, for the tests that compare them with torch's."""
    return _load(build.emulator_library())


@functools.cache
def _load(library: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(library))
    loaded.sparse_mla_emulate.argtypes = (
        *(ctypes.POINTER(DecodeCall), ctypes.c_uint32, ctypes.POINTER(_Counters)),
        *(ctypes.c_char_p, ctypes.c_int),
    )
    loaded.sparse_mla_shared_bytes.restype = ctypes.c_int64
    loaded.sparse_mla_half_to_float.restype = ctypes.c_float
    loaded.sparse_mla_half_from_float.argtypes = (ctypes.c_float,)
    for name in ("half_from_float", "half_from_e4m3", "half_from_e2m1"):
        getattr(loaded, f"sparse_mla_{name}").restype = ctypes.c_uint16
    return loaded
