"""Calibration: what it chooses, on what, and that it cannot be fooled by its own material."""

import pytest
import torch

from benches.kernels import families
from nvfp4 import errors, row
from nvfp4.calibrate import (
    IDENTITY,
    Choice,
    Context,
    Transform,
    calibrate,
    channel_scales,
    fit,
    loss,
    weighted_mean,
)


def drawn(kind, undone=0.5, seed=30):
    return families.draw(families.Family(kind, undone), seed)


def resting_on_a_first_token(seed, rows=96):
    """Contexts whose first row is the same everywhere, and which most heads rest on."""
    fixed = torch.Generator().manual_seed(31)
    first = torch.randn(row.LATENT, generator=fixed) * 2
    direction = torch.randn(row.ROPE, generator=fixed)
    generator = torch.Generator().manual_seed(seed)
    latents = torch.randn(rows, row.LATENT, generator=generator)
    latents[0] = first
    rope = torch.randn(rows, row.ROPE, generator=generator)
    rope[0] = direction * 3
    queries = torch.randn(8, 4, row.WIDTH, generator=generator)
    queries[..., row.LATENT :] += direction
    return Context(latents, rope, queries, 1 / 24, torch.arange(rows - 8, rows))


def test_scales_and_search_lose_a_fifth_less_where_channels_differ():
    calibration, evaluation = drawn("lognormal")

    found = calibrate(calibration)

    plain = loss(evaluation, IDENTITY, "amax")
    assert loss(evaluation, found.transform) < 0.8 * plain
    assert 0 < found.choice.exponent < 1
    assert found.losses[found.choice] == min(found.losses.values()) < 0.8 * found.plain_loss


def test_the_search_alone_loses_less_than_amax_on_alike_channels():
    _, evaluation = drawn("gaussian")

    assert loss(evaluation, IDENTITY, "mse") < 0.95 * loss(evaluation, IDENTITY, "amax")


def test_a_token_that_heads_rest_on_is_taken_as_the_centre():
    contexts = [resting_on_a_first_token(seed) for seed in (1, 2, 3)]
    evaluation = resting_on_a_first_token(4)

    found = calibrate(contexts)

    assert found.choice.is_centred
    apart = (found.transform.centre - evaluation.latents[0]).norm()
    assert apart < 0.2 * evaluation.latents[0].norm()
    without = calibrate(contexts, may_centre=False)
    assert loss(evaluation, found.transform) < 0.7 * loss(evaluation, without.transform)


def test_a_centre_that_only_fits_its_own_contexts_is_not_taken():
    """Every context looks at a row of its own: what fits one says nothing of the others."""
    contexts = [looking_at_one_row(seed) for seed in (1, 2)]

    found = calibrate(contexts, exponents=(0.0,))

    own = fit(contexts[:1], [Choice(True, 0.0)])[Choice(True, 0.0)]
    assert loss(contexts[0], own) < 0.1 * loss(contexts[0], IDENTITY)
    assert loss(contexts[1], own) > 1.2 * loss(contexts[1], IDENTITY)
    assert not found.choice.is_centred


def looking_at_one_row(seed):
    latents = torch.randn(64, row.LATENT, generator=torch.Generator().manual_seed(seed))
    queries = torch.zeros(2, 4, row.WIDTH)
    queries[..., : row.LATENT] = latents[5]
    return Context(latents, torch.zeros(64, row.ROPE), queries, 1 / 20)


def test_tokens_see_only_the_rows_before_them():
    context = resting_on_a_first_token(5)
    later = context.latents.clone()
    later[-1] = 99.0
    changed = Context(later, context.rope, context.queries, context.softmax_scale, context.visible)

    assert torch.equal(context.output(), changed.output())
    assert torch.equal(weighted_mean([context]), weighted_mean([changed]))


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("size", [1e-3, 1.0, 300.0])
def test_scales_are_powers_of_two_that_bring_the_rms_to_one(exponent, size):
    generator = torch.Generator().manual_seed(32)
    channels = torch.randn(row.LATENT, generator=generator).exp()
    latents = torch.randn(200, row.LATENT, generator=generator) * channels * size
    latents[:, 7] = 0

    scales = channel_scales(latents, exponent)

    assert (torch.frexp(scales).mantissa == 0.5).all()
    assert 0.7 < (latents / scales).square().mean().sqrt() < 1.4
    spread = (latents / scales).square().mean(dim=0).sqrt()
    spread = spread[spread > 0]
    if exponent == 1.0:
        assert spread.max() / spread.min() < 2.1


def test_a_digest_names_centre_and_scales():
    ones, twos = torch.ones(row.LATENT), torch.full((row.LATENT,), 2.0)

    transforms = [IDENTITY, Transform(ones, ones), Transform(twos, ones), Transform(ones, twos)]

    assert len({transform.digest() for transform in transforms}) == len(transforms)
    assert Transform(twos.clone(), ones.clone()).digest() == transforms[2].digest()


def altered(**changes):
    good = resting_on_a_first_token(6)
    fields = {name: getattr(good, name) for name in good.__dataclass_fields__}
    return Context(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"latents": torch.zeros(96, 500)}, errors.WrongShape, "512"),
        ({"latents": torch.zeros(96, 512).double()}, errors.WrongDtype, "float32"),
        ({"latents": torch.full((96, 512), torch.nan)}, errors.WrongValue, "finite"),
        ({"latents": torch.zeros(96, 512)}, errors.WrongValue, "not all zero"),
        ({"rope": torch.zeros(95, 64)}, errors.WrongShape, r"\[96, 64\], got \[95, 64\]"),
        ({"queries": torch.zeros(0, 4, 576)}, errors.WrongShape, "something in it"),
        ({"softmax_scale": float("nan")}, errors.WrongValue, "softmax_scale a finite"),
        ({"softmax_scale": 1e300}, errors.WrongValue, "softmax_scale a finite"),
        ({"visible": torch.tensor([0] * 8)}, errors.WrongValue, "1 to 96"),
        ({"visible": torch.tensor([5] * 7)}, errors.WrongShape, r"\[8\], got \[7\]"),
    ],
)
def test_a_context_that_cannot_be_calibrated_on_is_refused(changes, error, says):
    for may_centre in (False, True):
        with pytest.raises(error, match=says):
            calibrate([altered(**changes), altered(**changes)], may_centre=may_centre)


def test_a_context_among_others_whose_output_is_zero_is_refused():
    empty = altered(latents=torch.zeros(96, row.LATENT))

    with pytest.raises(errors.WrongValue, match="output of context 2 finite and not all zero"):
        calibrate([resting_on_a_first_token(1), resting_on_a_first_token(2), empty])


@pytest.mark.parametrize("exponents", [(), (0.0, float("nan")), (float("inf"),)])
def test_exponents_that_are_none_or_no_numbers_are_refused(exponents):
    with pytest.raises(errors.WrongValue, match="exponents finite, at least one"):
        calibrate([resting_on_a_first_token(1), resting_on_a_first_token(2)], exponents)


def test_an_exponent_that_no_scale_can_hold_is_refused():
    with pytest.raises(errors.WrongValue, match="exponent of scales that float32 holds, got 900"):
        channel_scales(drawn("lognormal")[1].latents, 900.0)


def test_one_context_is_not_enough():
    with pytest.raises(errors.WrongValue, match="at least two"):
        calibrate([resting_on_a_first_token(1)])
