"""Synthetic latents whose channels differ in known ways: the families that recipes are compared on.

Latents are normalised row by row, as kv_a's RMSNorm leaves them. Queries are divided by
rms(channel) ** `undone`: at 0 they ignore how large a channel is, at 1 they cancel it. Logits have
a standard deviation of 2 from the latent and 2 from the rope part.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from nvfp4 import row
from nvfp4.calibrate import Context

Kind = Literal["gaussian", "lognormal", "low rank", "outliers"]
KINDS: tuple[Kind, ...] = ("gaussian", "lognormal", "low rank", "outliers")
UNDONE = (0.0, 0.5, 1.0)
TOKENS, HEADS = 4, 16
EVALUATION_ROWS, CALIBRATION_ROWS = 2048, (128, 128)
LOGIT_STD = 2.0


@dataclass(frozen=True)
class Family:
    """One setting of the generator."""

    kind: Kind
    undone: float


FAMILIES = tuple(Family(kind, undone) for kind in KINDS for undone in UNDONE)


def draw(family: Family, seed: int) -> tuple[list[Context], Context]:
    """Calibration contexts, and one to evaluate on that shares none of their rows and queries."""
    generator = torch.Generator().manual_seed(seed)
    sizes = (*CALIBRATION_ROWS, EVALUATION_ROWS)
    latents = _latents(family.kind, sum(sizes), generator)
    rope = _normal(sum(sizes), row.ROPE, generator=generator)
    rope *= torch.linspace(1.5, -1, row.ROPE).exp()
    rms = latents.square().mean(dim=0).sqrt()
    contexts = []
    for part, part_rope in zip(latents.split(sizes), rope.split(sizes), strict=True):
        queries = _normal(TOKENS, HEADS, row.WIDTH, generator=generator)
        queries[..., : row.LATENT] /= rms**family.undone
        for columns, keys in (
            (slice(0, row.LATENT), part),
            (slice(row.LATENT, row.WIDTH), part_rope),
        ):
            queries[..., columns] *= LOGIT_STD / (queries[..., columns] @ keys.T).std()
        contexts.append(Context(part.clone(), part_rope.clone(), queries, 1.0))
    return contexts[:-1], contexts[-1]


def _latents(kind: Kind, count: int, generator: torch.Generator) -> torch.Tensor:
    values = _normal(count, row.LATENT, generator=generator)
    match kind:
        case "gaussian":
            pass
        case "lognormal":
            values *= _normal(row.LATENT, generator=generator).exp()
        case "outliers":
            values[:, torch.randperm(row.LATENT, generator=generator)[:8]] *= 20
        case "low rank":
            rank = 32
            basis = _normal(rank, row.LATENT, generator=generator) / rank**0.5
            basis *= (0.7 * _normal(row.LATENT, generator=generator)).exp()
            values = _normal(count, rank, generator=generator) @ basis + 0.3 * values
    return values / values.square().mean(dim=1, keepdim=True).sqrt()


def _normal(*shape: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(*shape, generator=generator)
