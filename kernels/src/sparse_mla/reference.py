"""Sparse MLA decode in float64: slow, short, and what every other path is compared with.

Its decoding is written apart from the kernel's, from the formats' definitions: a reference that
shared the kernel's helpers would agree with any scale order.
"""

import math

import torch

from sparse_mla import row
from sparse_mla.call import Decode


def decode(step: Decode) -> tuple[torch.Tensor, torch.Tensor]:
    """A whole step, fused or not: its output and log-sum-exp in float64."""
    if step.jobs is None:
        chosen = step.indices
    else:
        chosen = step.indices.new_full((len(step.query), step.indices.numel()), -1)
        for first, tokens, begin, length in step.jobs.tolist():
            slots = step.indices[begin : begin + length]
            masks = torch.full_like(slots, -1)
            if step.masks is not None:
                masks = step.masks[begin : begin + length]
            for token in range(tokens):
                is_used = (masks >> token & 1).bool()
                chosen[first + token, :length] = torch.where(is_used, slots, -1)
    out, lse = attend(step.query, step.rows, chosen, step.scale, step.sinks)
    return out * step.out_scale, lse


def decode_rows(rows: torch.Tensor) -> torch.Tensor:
    """[n, 352] uint8 to [n, 576] float64, exact."""
    bytes_ = rows.long()
    codes = torch.stack([bytes_[:, : row.ROPE_AT] & 15, bytes_[:, : row.ROPE_AT] >> 4], dim=2)
    latent = _e2m1_values().to(rows.device)[codes.flatten(1)]
    e4m3 = _e4m3_values().to(rows.device)
    for group in range(row.LATENT // row.GROUP):
        at = row.SCALES_AT + 8 * (group & 3) + (group >> 2)
        latent[:, group * row.GROUP : (group + 1) * row.GROUP] *= e4m3[bytes_[:, at, None]]
    return torch.cat([latent, e4m3[bytes_[:, row.ROPE_AT : row.SCALES_AT]]], dim=1)


def attend(
    query: torch.Tensor,
    rows: torch.Tensor,
    indices: torch.Tensor,
    scale: float,
    sinks: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of query [tokens, heads, 576] over the rows that indices [tokens, slots] choose.

    Returns the output [tokens, heads, 512] and the natural log-sum-exp [tokens, heads], both
    float64. A sink [heads] is a logit that takes weight and gives nothing; it is part of the
    log-sum-exp. A token without rows gives zeros, and its sink or minus infinity.
    """
    tokens, heads, _ = query.shape
    sink = query.new_full((heads,), -math.inf, dtype=torch.float64)
    if sinks is not None:
        sink = sinks.double()
    out = query.new_zeros((tokens, heads, row.LATENT), dtype=torch.float64)
    lse = sink.repeat(tokens, 1)
    for token in range(tokens):
        chosen = indices[token][indices[token] != -1].long()
        if len(chosen) == 0:
            continue
        keys = decode_rows(rows[chosen])
        scores = query[token].double() @ keys.T * scale
        lse[token] = torch.logsumexp(torch.cat([scores, sink[:, None]], dim=1), dim=1)
        out[token] = torch.exp(scores - lse[token][:, None]) @ keys[:, : row.LATENT]
    return out, lse


def _e4m3_values() -> torch.Tensor:
    values = []
    for byte in range(256):
        exponent, fraction = byte >> 3 & 15, byte & 7
        magnitude = (
            math.ldexp(8 + fraction, exponent - 10) if exponent else math.ldexp(fraction, -9)
        )
        if byte & 127 == 127:
            magnitude = math.nan
        values.append(-magnitude if byte & 128 else magnitude)
    return torch.tensor(values, dtype=torch.float64)


def _e2m1_values() -> torch.Tensor:
    magnitudes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    return torch.tensor(magnitudes + [-m for m in magnitudes], dtype=torch.float64)
