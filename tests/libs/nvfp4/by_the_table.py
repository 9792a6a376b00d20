"""The row by its definition, a second time and apart from the library: tables, loops, no torch.

Rounding looks up a format's values and takes the nearest, the even code of two equally near;
midpoints are exact in Python's floats. Only where the definition names a float32 product or
quotient does numpy's float32 appear.
"""

import bisect
import math

import numpy as np

E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def e4m3_value(byte: int) -> float:
    """Magnitude of an e4m3 byte: bias 7, three bits of mantissa."""
    exponent, mantissa = byte >> 3 & 15, byte & 7
    if exponent == 0:
        return mantissa / 8 / 2**6
    return (1 + mantissa / 8) * 2.0 ** (exponent - 7)


E4M3 = [e4m3_value(byte) for byte in range(127)]


def nearest(value: float, table: list[float]) -> int:
    """Code of the value nearest to a magnitude; ties to the even code, above all the last."""
    above = bisect.bisect_left(table, value)
    if above in (0, len(table)):
        return min(above, len(table) - 1)
    middle = (table[above - 1] + table[above]) / 2
    if value == middle:
        return above - above % 2
    return above if value > middle else above - 1


def e4m3_byte(value: float) -> int:
    """A signed value as e4m3; every NaN is 0x7f."""
    if math.isnan(value):
        return 0x7F
    return nearest(abs(value), E4M3) | (0x80 if math.copysign(1, value) < 0 else 0)


def row_of(values: np.ndarray) -> bytes:
    """The 352 bytes of 576 float32 values, scales by amax / 6."""
    row = bytearray(352)
    for group in range(32):
        members = values[16 * group : 16 * group + 16]
        scale, codes = group_of(members)
        row[320 + 8 * (group % 4) + group // 4] = scale
        for pair in range(8):
            row[8 * group + pair] = codes[2 * pair] + 16 * codes[2 * pair + 1]
    for at in range(64):
        row[256 + at] = e4m3_byte(float(values[512 + at]))
    return bytes(row)


def group_of(members: np.ndarray) -> tuple[int, list[int]]:
    """Scale byte and codes of sixteen float32 values."""
    if np.isnan(members).any():
        return 0x7F, [0] * 16
    with np.errstate(all="ignore"):
        wanted = np.float32(np.abs(members).max()) * np.float32(1 / 6)
    scale = e4m3_byte(max(float(wanted), 2.0**-9))
    return scale, codes_of(members, scale)


def codes_of(members: np.ndarray, scale: int) -> list[int]:
    """Codes of sixteen float32 values, none of them NaN, under a scale byte."""
    with np.errstate(all="ignore"):
        scaled = members * (np.float32(1) / np.float32(e4m3_value(scale)))
    return [
        nearest(abs(float(value)), E2M1) | (8 if np.signbit(member) else 0)
        for value, member in zip(scaled, members, strict=True)
    ]


def searched_scale(members: np.ndarray) -> int:
    """Scale byte of sixteen finite float32 values that the search takes."""
    first, _ = group_of(members)
    candidates = [min(max(first + step, 1), 126) for step in (0, 1, 2, 3, 4, 5, 6, -1)]
    return min(candidates, key=lambda scale: squared_error(members, scale))  # the first of equals


def squared_error(members: np.ndarray, scale: int) -> np.float32:
    """In float32, summed in the definition's order: the upper half onto the lower, four times."""
    signs = [-1 if np.signbit(member) else 1 for member in members]
    values = [
        sign * E2M1[code & 7] * e4m3_value(scale)
        for sign, code in zip(signs, codes_of(members, scale), strict=True)
    ]
    with np.errstate(all="ignore"):
        squares = (np.array(values, np.float32) - members) ** 2
        while len(squares) > 1:
            squares = squares[: len(squares) // 2] + squares[len(squares) // 2 :]
    return squares[0]


def values_of(row: bytes) -> list[float]:
    """The 576 values of a row; NaN where a scale or rope byte is."""
    values = []
    for at in range(512):
        group = at // 16
        nibble = row[at // 2] >> 4 if at % 2 else row[at // 2] & 15
        scale = signed(row[320 + 8 * (group % 4) + group // 4])
        magnitude = scale * E2M1[nibble & 7]
        values.append(-magnitude if nibble & 8 else magnitude)
    return values + [signed(row[256 + at]) for at in range(64)]


def signed(byte: int) -> float:
    """An e4m3 byte's value."""
    if byte & 127 == 127:
        return math.nan
    return math.copysign(e4m3_value(byte & 127), -1 if byte & 128 else 1)
