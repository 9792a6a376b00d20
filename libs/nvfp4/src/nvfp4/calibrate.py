"""A static centre and channel scales for a layer's latents: the same 352 bytes, less that attention
loses.

A row then holds (latent - centre) / scales, and the weights around the cache undo it (`fold`), so
no token pays for it.

- Scales: a group of 16 shares one scale, so its largest channel sets the others' precision. Channel
  i is divided by rms(i) ** exponent. Which exponent is best depends on how much of a channel's size
  the queries undo; rows alone do not show that, so it is searched on what attention loses. Scales
  are powers of two, which fold into weights of any float type without rounding.
- Centre: a softmax does not see what is added to all of a query's scores alike, and its weights sum
  to one, so any constant may be taken out of all rows (not so with a learned sink logit). The error
  of a row counts with its weight squared, so the best constant is the mean of the rows by squared
  weight. Where heads rest on a first token that says nothing, it is nearly that token.

Each choice is judged on contexts that it was not fitted on. Rows of another transform are other
rows: put `Transform.digest()` into every cache key.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from nvfp4 import checks, errors, native, row

EXPONENTS = tuple(step / 8 for step in range(9))
"""0 leaves channels alone, 1 makes them alike."""
FLOOR = 2.0**-12
"""Of the largest channel's rms: what a channel that is (nearly) always zero counts as."""


@dataclass(frozen=True)
class Context:
    """What a layer does in one context, float32 and finite.

    `latents` [n, 512] as the cache would hold them, after kv_a's norm; `rope` [n, 64]; `queries`
    [tokens, heads, 576] absorbed, as `sparse_mla` takes them; `visible` int64 [tokens]: how many of
    the first rows each token sees, None for all.
    """

    latents: torch.Tensor
    rope: torch.Tensor
    queries: torch.Tensor
    softmax_scale: float
    visible: torch.Tensor | None = None

    def check(self) -> None:
        """WrongShape, WrongDtype or WrongValue for what cannot be calibrated on."""
        floats, tokens = (torch.float32,), len(self.queries)
        checks.memory("latents", self.latents, floats, ("n", row.LATENT))
        checks.memory("rope", self.rope, floats, (len(self.latents), row.ROPE))
        checks.memory("queries", self.queries, floats, ("tokens", "heads", row.WIDTH))
        for name in ("latents", "rope", "queries"):
            tensor = getattr(self, name)
            if not tensor.numel():
                raise errors.WrongShape(name, "with something in it", list(tensor.shape))
            if not tensor.isfinite().all():
                raise errors.WrongValue(name, "finite", "NaN or infinity")
        checks.finite("softmax_scale", self.softmax_scale)
        if self.visible is not None:
            checks.memory("visible", self.visible, (torch.int64,), (tokens,))
            if not ((self.visible >= 1) & (self.visible <= len(self.latents))).all():
                raise errors.WrongValue("visible", f"of 1 to {len(self.latents)}", "others")

    def weights(self, latents: torch.Tensor, rope: torch.Tensor) -> torch.Tensor:
        """Softmax weights [tokens, heads, n] over these latents and rope keys."""
        scores = self.queries @ torch.cat([latents, rope], dim=1).T * self.softmax_scale
        if self.visible is not None:
            is_hidden = torch.arange(len(latents)) >= self.visible[:, None, None]
            scores = scores.masked_fill(is_hidden, -torch.inf)
        return torch.softmax(scores, dim=-1)

    def output(self) -> torch.Tensor:
        """Attention without loss, [tokens, heads, 512]."""
        return self.weights(self.latents, self.rope) @ self.latents


@dataclass(frozen=True)
class Transform:
    """A row holds (latent - centre) / scales. Both float32 [512]; scales are powers of two."""

    centre: torch.Tensor
    scales: torch.Tensor

    def digest(self) -> str:
        """Names the transform: rows of another one must not be read with these weights."""
        both = torch.cat([self.centre, self.scales])
        return hashlib.sha256(both.numpy().tobytes()).hexdigest()[:16]


IDENTITY = Transform(torch.zeros(row.LATENT), torch.ones(row.LATENT))


@dataclass(frozen=True)
class Choice:
    """What `calibrate` decides between."""

    is_centred: bool
    exponent: float


@dataclass(frozen=True)
class Calibration:
    """The transform of a layer and how it was chosen.

    `losses`: relative error of the attention output for each choice, on contexts it was not fitted
    on; `plain_loss`: amax / 6 and no transform.
    """

    transform: Transform
    choice: Choice
    losses: dict[Choice, float]
    plain_loss: float


def calibrate(
    contexts: Sequence[Context],
    exponents: Sequence[float] = EXPONENTS,
    may_centre: bool = True,
) -> Calibration:
    """The choice that loses least on contexts left out of its fit, fitted again on all of them.

    WrongValue for fewer than two contexts, one whose attention gives nothing to lose, no exponents.
    """
    for context in contexts:
        context.check()
    if len(contexts) < 2:
        raise errors.WrongValue(
            "contexts", "of at least two, to judge one by others", len(contexts)
        )
    if not exponents or not all(math.isfinite(exponent) for exponent in exponents):
        raise errors.WrongValue("exponents", "finite, at least one", exponents)
    centred = (False, True) if may_centre else (False,)
    choices = [Choice(is_centred, exponent) for is_centred in centred for exponent in exponents]
    wanted = [context.output() for context in contexts]
    for number, want in enumerate(wanted):  # a loss is relative to it
        if not 0 < (length := float(want.norm())) < math.inf:
            name = f"the attention output of context {number}"
            raise errors.WrongValue(name, "finite and not all zero", length)
    losses = dict.fromkeys(choices, 0.0)
    for left_out, (context, want) in enumerate(zip(contexts, wanted, strict=True)):
        others = [*contexts[:left_out], *contexts[left_out + 1 :]]
        for choice, transform in fit(others, choices).items():
            losses[choice] += loss(context, transform, want=want) / len(contexts)
    plain = [
        loss(each, IDENTITY, "amax", want) for each, want in zip(contexts, wanted, strict=True)
    ]
    best = min(choices, key=lambda choice: losses[choice])
    transform = fit(contexts, [best])[best]
    return Calibration(transform, best, losses, sum(plain) / len(plain))


def fit(contexts: Sequence[Context], choices: Sequence[Choice]) -> dict[Choice, Transform]:
    """The transform of each choice, from these contexts."""
    latents = torch.cat([context.latents for context in contexts])
    none = torch.zeros(row.LATENT)
    centre = weighted_mean(contexts) if any(each.is_centred for each in choices) else none
    centres = {False: none, True: centre}
    return {
        choice: Transform(
            centres[choice.is_centred],
            channel_scales(latents - centres[choice.is_centred], choice.exponent),
        )
        for choice in choices
    }


def weighted_mean(contexts: Sequence[Context]) -> torch.Tensor:
    """Mean of the contexts' latents [512], each by the sum of its squared attention weights."""
    total, weight = torch.zeros(row.LATENT, dtype=torch.float64), 0.0
    for context in contexts:
        counts = context.weights(context.latents, context.rope).double().square().sum(dim=(0, 1))
        total += counts @ context.latents.double()
        weight += float(counts.sum())
    return (total / weight).float()


def channel_scales(latents: torch.Tensor, exponent: float) -> torch.Tensor:
    """Powers of two [512] near rms(channel) ** exponent, so sized that scaled latents have an rms
    of 1.

    That size keeps group scales in e4m3's normal range, whatever the latents' own.
    """
    checks.memory("latents", latents, (torch.float32,), ("n", row.LATENT))
    rms = latents.double().square().mean(dim=0).sqrt()
    largest = rms.max()
    if not largest > 0 or not largest.isfinite():
        raise errors.WrongValue("latents", "finite and not all zero", float(largest))
    wanted = rms.clamp(min=float(largest) * FLOOR) ** exponent
    size = (rms / wanted).square().mean().sqrt()
    scales = torch.exp2(torch.log2(wanted * size).round()).float()
    if not ((scales > 0) & scales.isfinite()).all():
        raise errors.WrongValue("exponent", "of scales that float32 holds", exponent)
    return scales


def loss(
    context: Context,
    transform: Transform,
    scales: row.ScaleChoice = "mse",
    want: torch.Tensor | None = None,
) -> float:
    """Relative L2 error of the attention output when rows are kept under the transform."""
    kept = (context.latents - transform.centre) / transform.scales
    values = native.dequantise(native.quantise(torch.cat([kept, context.rope], dim=1), scales))
    latents = values[:, : row.LATENT] * transform.scales + transform.centre
    got = context.weights(latents, values[:, row.LATENT :]) @ latents
    want = context.output() if want is None else want
    return float((got - want).norm() / want.norm())
