"""The definition: `nvfp4_ds_mla` rows in plain torch, slow and short. Everything else is compared
with it.

Rounding, NaN, infinity, zero and saturation follow the table in README.md; each of its lines has a
test. No step depends on how torch casts to float8: rounding is spelled out, so a new torch cannot
move a byte. Attention is computed in float64.
"""

from dataclasses import dataclass

import torch

from nvfp4 import checks, errors, row

_SCALE_COLUMNS = torch.tensor(row.SCALE_BYTES)
_E2M1 = torch.tensor([*row.E2M1_MAGNITUDES, *(-value for value in row.E2M1_MAGNITUDES)])
_ONE_SIXTH = torch.tensor(1 / 6, dtype=torch.float32)
_STEPS_PER_UNIT = torch.tensor([2.0 ** (3 - exponent) for exponent in range(-6, 9)])
"""e4m3 steps in 1.0, for values of exponent -6 (and below) to 8."""


def _e4m3_values() -> torch.Tensor:
    """Value of every e4m3 byte; both NaN bytes are the same NaN."""
    magnitudes = [
        (8 + (byte & 7)) * 2.0 ** ((byte >> 3) - 10) if byte >> 3 else (byte & 7) * 2.0**-9
        for byte in range(127)
    ]
    nan = [float("nan")]
    return torch.tensor([*magnitudes, *nan, *(-value for value in magnitudes), *nan])


_E4M3 = _e4m3_values()


@dataclass(frozen=True)
class Chosen:
    """The rows each token attends to.

    `indices` int32 [tokens, slots]: rows of the cache, -1 for an empty slot. `counts` int32
    [tokens]: only the first so many slots of a token are looked at; None means all.
    """

    indices: torch.Tensor
    counts: torch.Tensor | None = None


@dataclass(frozen=True)
class Attended:
    """`out` [tokens, heads, 512] in latent space; `lse` [tokens, heads]: natural log of the
    softmax's denominator, the sink included. Float64 from golden, float32 from native. A token
    without rows: zeros, and -inf (or its sink)."""

    out: torch.Tensor
    lse: torch.Tensor


def quantise(values: torch.Tensor, scales: row.ScaleChoice = "amax") -> torch.Tensor:
    """Latents and rope keys [n, 576] (float32, bfloat16, float16) to rows [n, 352] uint8.

    `amax` is vLLM's recipe (`concat_and_cache_nvfp4_ds_mla`), `mse` the search over SEARCH_STEPS.
    """
    checks.values(values)
    checks.scale_choice(scales)
    count = len(values)
    groups = values[:, : row.LATENT].float().reshape(count, row.GROUPS, row.GROUP)
    chosen = amax_scales(groups) if scales == "amax" else searched_scales(groups)
    codes = group_codes(groups, chosen).reshape(count, row.LATENT)
    rows = torch.empty(count, row.ROW_BYTES, dtype=torch.uint8)
    rows[:, row.CODE_BYTES] = codes[:, 0::2] | (codes[:, 1::2] << 4)
    rows[:, row.ROPE_BYTES] = e4m3_bytes(values[:, row.LATENT :].float())
    rows[:, _SCALE_COLUMNS] = chosen
    return rows


def dequantise(rows: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Rows [n, 352] uint8 to [n, 576]; exact in float32, bfloat16 and float16. NaN is the quiet
    one."""
    checks.rows(rows)
    checks.result_dtype(dtype)
    packed = rows[:, row.CODE_BYTES]
    codes = torch.stack([packed & 15, packed >> 4], dim=-1).reshape(-1, row.GROUPS, row.GROUP)
    latent = _E2M1[codes.int()] * group_scales(rows)[..., None]
    rope = _E4M3[rows[:, row.ROPE_BYTES].int()]
    values = torch.cat([latent.reshape(-1, row.LATENT), rope], dim=1)
    return values.to(dtype).where(~values.isnan(), torch.tensor(torch.nan, dtype=dtype))


def group_scales(rows: torch.Tensor) -> torch.Tensor:
    """Scales of rows [n, 352] as float32 [n, 32], in the order of the groups."""
    return _E4M3[rows[:, _SCALE_COLUMNS].int()]


def sparse_mla(
    rows: torch.Tensor,
    queries: torch.Tensor,
    chosen: Chosen,
    scale: float,
    sinks: torch.Tensor | None = None,
) -> Attended:
    """Decode attention of absorbed queries [tokens, heads, 576] over the chosen rows, in float64.

    Scores are `scale` times the product of all 576 values; the first 512 are also what is summed.
    `sinks` float32 [heads]: a logit that takes weight and gives nothing. NaN in a row that was
    chosen makes its token's output NaN.
    """
    checks.rows(rows)
    checks.queries(queries)
    tokens, heads, _ = queries.shape
    checks.chosen(chosen.indices, chosen.counts, tokens)
    checks.softmax(scale, sinks, heads)
    sink = torch.full([heads], -torch.inf).double() if sinks is None else sinks.double()
    out = torch.zeros(tokens, heads, row.LATENT, dtype=torch.float64)
    lse = sink.repeat(tokens, 1)
    for token in range(tokens):
        kept = _kept(chosen, token, len(rows))
        if not len(kept):
            continue
        keys = dequantise(rows[kept]).double()
        scores = queries[token].double() @ keys.T * scale
        lse[token] = torch.logsumexp(torch.cat([scores, sink[:, None]], dim=1), dim=1)
        out[token] = torch.exp(scores - lse[token][:, None]) @ keys[:, : row.LATENT]
    return Attended(out, lse)


def e4m3_bytes(values: torch.Tensor) -> torch.Tensor:
    """Float32 to e4m3: nearest, ties to even, saturating at 448, sign kept; every NaN is 0x7f."""
    magnitudes = values.abs().clamp(max=row.E4M3_MAX)
    exponents = (torch.frexp(magnitudes).exponent - 1).clamp(min=-6, max=8)
    exponents = exponents.where(magnitudes >= 2.0**-6, -6)  # subnormals, zero and NaN
    steps = torch.round(magnitudes * _STEPS_PER_UNIT[exponents + 6])
    # Eight steps to an exponent; the byte of a subnormal is its number of steps.
    magnitude_bytes = 8 * (exponents + 6) + steps.nan_to_num().int()
    signed = magnitude_bytes + 128 * torch.signbit(values).int()
    return signed.where(~values.isnan(), row.E4M3_NAN_BYTE).to(torch.uint8)


def e2m1_codes(values: torch.Tensor) -> torch.Tensor:
    """Float32 to e2m1: nearest, ties to the even code, saturating at 6; bit 3 keeps the sign."""
    a = values.abs().clamp(max=row.E2M1_MAX)
    # The code as a function of the magnitude has slope 2, then 1, then 1/2: the least of three
    # lines.
    codes = torch.minimum(
        torch.round(2 * a), torch.minimum(torch.round(a) + 2, torch.round(a / 2) + 4)
    )
    return codes.to(torch.uint8) | (torch.signbit(values).to(torch.uint8) << 3)


def amax_scales(groups: torch.Tensor) -> torch.Tensor:
    """Scale bytes [n, 32] of float32 groups [n, 32, 16]: largest magnitude times float32(1/6)."""
    largest = groups.abs().amax(dim=-1)  # NaN if one of them is
    return e4m3_bytes(torch.clamp(largest * _ONE_SIXTH, min=row.MIN_SCALE))


def searched_scales(groups: torch.Tensor) -> torch.Tensor:
    """Scale bytes [n, 32] that lose the least squared error of float32 groups [n, 32, 16]."""
    first = amax_scales(groups).int()
    best, least = first, torch.full(first.shape, torch.nan)
    for step in row.SEARCH_STEPS:
        candidate = (first + step).clamp(row.MIN_SCALE_BYTE, row.E4M3_MAX_BYTE)
        error = _squared_error(groups, candidate)
        is_better = error < least if step else torch.ones_like(error, dtype=torch.bool)
        best, least = torch.where(is_better, candidate, best), torch.where(is_better, error, least)
    return torch.where(first == row.E4M3_NAN_BYTE, first, best).to(torch.uint8)


def group_codes(groups: torch.Tensor, scale_bytes: torch.Tensor) -> torch.Tensor:
    """Codes [n, 32, 16] of float32 groups under their scales; a NaN group has 16 zero codes."""
    # By the reciprocal, as vLLM's kernels do: a division would round some ties the other way.
    reciprocals = 1.0 / _E4M3[scale_bytes.int()]
    scaled = (groups * reciprocals[..., None]).nan_to_num(nan=0.0)
    codes = e2m1_codes(scaled)
    return codes.where((scale_bytes != row.E4M3_NAN_BYTE)[..., None], 0)


def _squared_error(groups: torch.Tensor, scale_bytes: torch.Tensor) -> torch.Tensor:
    """Float32 squared error [n, 32]; its sum has one fixed order, so that a tie is a tie
    everywhere."""
    decoded = _E2M1[group_codes(groups, scale_bytes).int()] * _E4M3[scale_bytes.int()][..., None]
    differences = decoded - groups
    squares = differences * differences
    for half in (8, 4, 2, 1):
        squares = squares[..., :half] + squares[..., half:]
    return squares[..., 0]


def _kept(chosen: Chosen, token: int, count: int) -> torch.Tensor:
    """Rows that a token reads, checked."""
    slots = chosen.indices.shape[1] if chosen.counts is None else int(chosen.counts[token])
    indices = chosen.indices[token, :slots]
    bad = ((indices < -1) | (indices >= count)).nonzero()
    if len(bad):
        slot = int(bad[0])
        raise errors.IndexOutOfRange(token, slot, int(indices[slot]), count)
    return indices[indices >= 0].long()
