"""What attention loses to 352-byte rows: amax / 6 beside the scale search and a calibrated
transform.

A loss is the relative L2 error of the attention output in latent space, rope in e4m3 on every side.
Calibration and evaluation share no row, query or text.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benches.kernels import converted, families
from benches.report import Figure
from nvfp4.calibrate import IDENTITY, Choice, Context, calibrate, fit, loss

GAIN_TARGET = 0.2
FIRST_SEED = 700
"""No seed from here on was looked at while the recipe was chosen."""


@dataclass(frozen=True)
class Losses:
    """Losses on one evaluation context: amax / 6, with the search, with scales too, with a centre
    too where that was chosen."""

    amax: float
    search: float
    scaled: float
    calibrated: float
    choice: Choice


def figures(model_dir: Path, seeds: int) -> list[Figure]:
    """Gains over amax / 6 on the synthetic families and on a converted model."""
    return [*family_figures(seeds), *converted_figures(model_dir)]


def family_figures(seeds: int) -> list[Figure]:
    """One figure for each family and their mean, over some draws each."""
    each = {
        family: [measure(*families.draw(family, FIRST_SEED + seed)) for seed in range(seeds)]
        for family in families.FAMILIES
    }
    singles = [
        _single(f"loss_{family.kind}_{family.undone:g}".replace(" ", "_"), losses)
        for family, losses in each.items()
    ]
    return [*singles, _mean_gain("gain_on_families", each.values(), f"{seeds} draws each")]


def converted_figures(model_dir: Path) -> list[Figure]:
    """One figure for each basis and their mean, over the layers."""
    by_basis: dict[str, list[Losses]] = {basis: [] for basis in converted.BASES}
    for layer in converted.convert(model_dir):
        by_basis[layer.basis].append(measure(layer.calibration, layer.evaluation))
    singles = [_single(f"loss_converted_{basis}", losses) for basis, losses in by_basis.items()]
    return [*singles, _mean_gain("gain_on_converted", by_basis.values(), converted.LABEL)]


def measure(calibration: Sequence[Context], evaluation: Context) -> Losses:
    """Losses of the recipes on a context, calibrated on others."""
    found = calibrate(calibration)
    without = min(
        (choice for choice in found.losses if not choice.is_centred),
        key=lambda choice: found.losses[choice],
    )
    scaled = fit(calibration, [without])[without]
    want = evaluation.output()
    return Losses(
        loss(evaluation, IDENTITY, "amax", want),
        loss(evaluation, IDENTITY, "mse", want),
        loss(evaluation, scaled, "mse", want),
        loss(evaluation, found.transform, "mse", want),
        found.choice,
    )


def _single(name: str, losses: Sequence[Losses]) -> Figure:
    amax, search, scaled, calibrated = (
        statistics.mean(getattr(each, recipe) for each in losses)
        for recipe in ("amax", "search", "scaled", "calibrated")
    )
    centred = sum(each.choice.is_centred for each in losses)
    exponents = sorted(each.choice.exponent for each in losses)
    note = (
        f"amax/6 {amax:.3f}, search {search:.3f}, with scales {scaled:.3f}, {centred} of "
        f"{len(losses)} centred; exponents {exponents[0]:g} to {exponents[-1]:g}"
    )
    return Figure(name, round(calibrated, 4), "", "", True, note)


def _mean_gain(name: str, groups: Iterable[Sequence[Losses]], note: str) -> Figure:
    """Mean over the groups of how much less each loses on average than by amax / 6."""
    gains = [
        1
        - statistics.mean(each.calibrated for each in losses)
        / statistics.mean(each.amax for each in losses)
        for losses in groups
    ]
    gain = statistics.mean(gains)
    spread = f"{min(gains):.2f} to {max(gains):.2f}; {note}"
    return Figure(name, round(gain, 3), "", f">= {GAIN_TARGET}", gain >= GAIN_TARGET, spread)
