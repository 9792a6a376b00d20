"""Values that a row codec must get right: random ones of every size, and each edge by name."""

import math

import torch

from nvfp4 import row

NAN, INF = math.nan, math.inf
NEARLY_TIED = (-2, 8, 11, 17, 15, 2, 8, 0, 11, -7, -1, -1, -11, 16, -7, -13)
"""A group, in units of 0.37 / 8, for which the order of a sum decides between two scales."""


def random_values(count: int, generator: torch.Generator) -> torch.Tensor:
    """[count, 576] float32: a third each Gaussian, spread over binades, and random bits.

    The second kind has a size of its own for each group and up to seven binades within it, so that
    scales of every exponent and ties occur; the third is mostly huge, tiny, infinite or NaN.
    """
    values = torch.empty(count, row.WIDTH)
    bits = torch.randint(-(2**31), 2**31, (count, row.WIDTH), generator=generator).int()
    first, second = count // 3, 2 * count // 3
    channels = torch.randn(row.WIDTH, generator=generator).exp()
    values[:first] = torch.randn(first, row.WIDTH, generator=generator) * channels
    values[first:second] = _binades(bits[first:second], generator)
    values[second:] = bits[second:].view(torch.float32)
    return values


def _binades(bits: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Random signs and mantissas, a third of which are cut short; exponents near the group's."""
    groups = bits.reshape(len(bits), -1, row.GROUP)
    top = torch.randint(127 - 14, 127 + 14, groups.shape[:2], generator=generator).int()
    exponents = top[..., None] - (groups >> 23 & 7)
    is_short = (groups >> 26 & 3) == 0
    mantissas = torch.where(is_short, groups & 0x700000, groups & 0x7FFFFF)
    signs = groups & -(2**31)
    return (signs | exponents << 23 | mantissas).view(torch.float32).reshape(bits.shape)


def every_product() -> torch.Tensor:
    """Rows that hold each scale byte with each code, and each rope byte."""
    packed = torch.zeros(256, row.ROW_BYTES, dtype=torch.uint8)
    every_byte = torch.arange(256, dtype=torch.uint8)
    pairs = torch.tensor([16 * (2 * pair + 1) + 2 * pair for pair in range(8)], dtype=torch.uint8)
    packed[:, row.CODE_BYTES] = pairs.repeat(row.GROUPS)
    packed[:, row.ROPE_BYTES] = every_byte[:, None]
    packed[:, list(row.SCALE_BYTES)] = every_byte[:, None]
    return packed


def edges() -> dict[str, torch.Tensor]:
    """Rows [1, 576] float32 of the policy's edge cases."""
    rows = {
        "zeros": _filled(0.0),
        "negative zeros": _filled(-0.0),
        "smallest subnormal": _filled(2.0**-149),
        "largest subnormal": _filled(2.0**-126 - 2.0**-149),
        "tiny": _filled(1e-8),
        "just under the smallest scale": _filled(math.nextafter(6 * 2.0**-9, 0)),
        "saturating": _filled(1e5),
        "largest": _filled(2688.0),
        "just above the largest": _filled(2688.01),
        "huge": _filled(3e38),
        "infinities": _filled(INF),
        "negative infinities": _filled(-INF),
        "all NaN": _filled(NAN),
        "mixed signs of zero": _alternating(0.0, -0.0),
        "nearly tied scales": (torch.tensor(NEARLY_TIED) / 8 * 0.37).repeat(36)[None].clone(),
        "rope subnormals and ties": _rope([step * 2.0**-11 for step in range(row.ROPE)]),
        "rope around 448": _rope([440 + step for step in range(row.ROPE)]),
        "rope non-finite": _rope([INF, -INF, NAN, -NAN] * 16),
    }
    for name, value in (("NaN", NAN), ("infinity", INF), ("3e38", 3e38), ("-1e5", -1e5)):
        for place in (0, 7, 15, row.LATENT - 1):
            values = torch.linspace(-3, 3, row.WIDTH)[None].clone()
            values[0, place] = value
            rows[f"one {name} at {place}"] = values
    for tie in (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0):
        for scale in (2.0**-9, 2.0**-6, 1.0, 1.875, 448.0):
            values = _alternating(tie * scale, -tie * scale)
            values[0, 0 : row.LATENT : row.GROUP] = 6 * scale
            rows[f"ties at {tie} x {scale}"] = values
    return rows


def _filled(value: float) -> torch.Tensor:
    return torch.full((1, row.WIDTH), value)


def _alternating(even: float, odd: float) -> torch.Tensor:
    return torch.tensor([even, odd]).repeat(row.WIDTH // 2)[None].clone()


def _rope(values: list[float]) -> torch.Tensor:
    return torch.cat([torch.zeros(row.LATENT), torch.tensor(values)])[None]
