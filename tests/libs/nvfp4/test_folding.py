"""The folded model is the unfolded one: in exact arithmetic, and bit for bit where nothing is
added."""

from fractions import Fraction

import pytest
import torch

from nvfp4 import errors, fold, row
from nvfp4.calibrate import IDENTITY, Transform


def transform_of(seed, is_centred=True):
    generator = torch.Generator().manual_seed(seed)
    exponents = torch.randint(-6, 7, (row.LATENT,), generator=generator)
    centre = torch.randn(row.LATENT, generator=generator) * is_centred
    return Transform(centre, torch.exp2(exponents.float()))


def exact(tensor):
    """A vector or matrix of fractions."""
    if tensor.dim() == 1:
        return [Fraction(float(value)) for value in tensor]
    return [exact(part) for part in tensor]


def times(matrix, vector):
    return [sum(a * b for a, b in zip(line, vector, strict=True)) for line in matrix]


def test_in_exact_arithmetic_the_folded_model_is_the_unfolded_one():
    """Scores differ by one constant, which a softmax does not see; outputs by nothing."""
    generator = torch.Generator().manual_seed(40)
    transform = transform_of(41)
    normed = exact(torch.randn(3, row.LATENT, generator=generator))
    norm = torch.rand(row.LATENT, generator=generator) + 0.5
    w_uk = torch.randn(4, row.LATENT, generator=generator)
    w_uv = torch.randn(4, row.LATENT, generator=generator)
    query = exact(torch.randn(4, generator=generator))
    weights = [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)]

    def mix(rows):
        return [
            sum(w * v for w, v in zip(weights, each, strict=True))
            for each in zip(*rows, strict=True)
        ]

    latents = [[g * n for g, n in zip(exact(norm), each, strict=True)] for each in normed]
    scores = [
        sum(q * k for q, k in zip(query, times(exact(w_uk), z), strict=True)) for z in latents
    ]
    outputs = times(exact(w_uv), mix(latents))

    # (g / c) n - m / c: the centre goes in unrounded here, as the bias in float32 does not.
    weight = exact(fold.norm_weight(norm, transform))
    bias = [-m / c for m, c in zip(exact(transform.centre), exact(transform.scales), strict=True)]
    kept = [[w * n + b for w, n, b in zip(weight, each, bias, strict=True)] for each in normed]
    folded_uk = exact(fold.up_weight(w_uk, transform))
    folded_uv = exact(fold.up_weight(w_uv, transform))
    folded = [sum(q * k for q, k in zip(query, times(folded_uk, z), strict=True)) for z in kept]
    missing = times(exact(w_uv), exact(transform.centre))
    got = [a + b for a, b in zip(times(folded_uv, mix(kept)), missing, strict=True)]

    assert got == outputs
    assert len({a - b for a, b in zip(scores, folded, strict=True)}) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_a_centre_attention_outputs_are_bit_equal(dtype):
    """Powers of two pass through every product and sum unrounded."""
    generator = torch.Generator().manual_seed(42)
    transform = transform_of(43, is_centred=False)
    normed = torch.randn(5, row.LATENT, generator=generator).to(dtype)
    norm = (torch.rand(row.LATENT, generator=generator) + 0.5).to(dtype)
    kv_b = torch.randn(6, row.LATENT, generator=generator).to(dtype)

    unfolded = kv_b @ (norm * normed).T
    folded = fold.up_weight(kv_b, transform) @ (fold.norm_weight(norm, transform) * normed).T

    assert torch.equal(folded, unfolded)


def test_biases_are_the_centre_seen_from_each_side():
    transform = transform_of(44)
    w_uv = torch.randn(3, 7, row.LATENT, generator=torch.Generator().manual_seed(45))

    assert torch.equal(fold.norm_bias(transform) * transform.scales, -transform.centre)
    want = (w_uv.double() @ transform.centre.double()).float()
    assert torch.equal(fold.value_bias(w_uv, transform), want)
    assert not fold.norm_bias(IDENTITY).any()
    assert not fold.value_bias(w_uv, IDENTITY).any()


def test_the_weights_keep_their_dtype_and_shape():
    transform, kv_b = transform_of(46), torch.ones(2, 3, row.LATENT, dtype=torch.float16)

    folded = fold.up_weight(kv_b, transform)

    assert folded.dtype == torch.float16
    assert folded.shape == kv_b.shape


@pytest.mark.parametrize(
    ("weight", "transform", "error"),
    [
        (torch.ones(500), IDENTITY, errors.WrongShape),
        (torch.ones(2, 512), IDENTITY, errors.WrongShape),
        (torch.ones(512, dtype=torch.int32), IDENTITY, errors.WrongDtype),
        (torch.ones(512), Transform(torch.zeros(512), torch.full((512,), 3.0)), errors.WrongValue),
        (torch.ones(512), Transform(torch.zeros(512), torch.full((512,), -2.0)), errors.WrongValue),
        (torch.ones(512), Transform(torch.zeros(512), torch.ones(500)), errors.WrongShape),
    ],
)
def test_what_cannot_be_folded_is_refused(weight, transform, error):
    with pytest.raises(error):
        fold.norm_weight(weight, transform)


def test_a_weight_that_would_lose_bits_is_refused():
    transform = Transform(torch.zeros(row.LATENT), torch.full((row.LATENT,), 2.0**16))

    with pytest.raises(errors.WrongValue, match=r"exact in torch\.float16"):
        fold.norm_weight(torch.full((row.LATENT,), 1.0009765625, dtype=torch.float16), transform)
