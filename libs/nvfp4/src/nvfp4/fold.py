"""Folds a calibration's transform into the weights around the latent: the cache changes, the model
not.

With z = g * n(x) the latent and a row that holds (z - m) / c:

- kv_a's norm writes it with weight g / c and bias -m / c (`norm_weight`, `norm_bias`);
- W_UK and W_UV (or `kv_b_proj`, which stacks them) read it with their columns times c
  (`up_weight`). Queries absorbed through that W_UK need nothing else: m adds the same to all of a
  query's scores;
- the constant W_UV m that the values lack is added per head (`value_bias`), or once behind o_proj.

In exact arithmetic the folded model is the unfolded one. Scales are powers of two, so no weight is
rounded; the biases are. The log-sum-exp of centred rows lacks scale * q . m: merge it only with
that of rows of the same transform. A model with learned sink logits takes scales but no centre: its
sinks would have to move with the keys' scores.
"""

import torch

from nvfp4 import errors, row
from nvfp4.calibrate import Transform


def norm_weight(weight: torch.Tensor, transform: Transform) -> torch.Tensor:
    """kv_a's RMSNorm weight [512] over the scales, in the weight's own dtype."""
    _check("weight", weight, transform)
    if weight.dim() != 1:
        raise errors.WrongShape("weight", f"[{row.LATENT}]", list(weight.shape))
    return _exactly(weight.double() / transform.scales.double(), weight.dtype)


def norm_bias(transform: Transform) -> torch.Tensor:
    """What the norm adds [512], float32; zeros for a transform without a centre."""
    return -transform.centre / transform.scales


def up_weight(weight: torch.Tensor, transform: Transform) -> torch.Tensor:
    """W_UK, W_UV or `kv_b_proj`, [..., 512], times the scales of the columns they read."""
    _check("weight", weight, transform)
    return _exactly(weight.double() * transform.scales.double(), weight.dtype)


def value_bias(w_uv: torch.Tensor, transform: Transform) -> torch.Tensor:
    """W_UV m in float32, [...] for an unfolded W_UV [..., 512]: added to what folded W_UV gives."""
    _check("w_uv", w_uv, transform)
    return (w_uv.double() @ transform.centre.double()).float()


def _check(name: str, weight: torch.Tensor, transform: Transform) -> None:
    for part in (transform.centre, transform.scales):
        if tuple(part.shape) != (row.LATENT,):
            raise errors.WrongShape("transform", f"[{row.LATENT}]", list(part.shape))
    if not weight.dim() or weight.shape[-1] != row.LATENT:
        raise errors.WrongShape(name, f"[..., {row.LATENT}]", list(weight.shape))
    if not weight.dtype.is_floating_point:
        raise errors.WrongDtype(name, "a float type", weight.dtype)
    scales = transform.scales.double()
    if not ((scales > 0) & (torch.frexp(scales).mantissa == 0.5)).all():
        raise errors.WrongValue("scales", "positive powers of two", "others")


def _exactly(folded: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The folded weight in its dtype; WrongValue if one leaves the dtype's range or precision."""
    cast = folded.to(dtype)
    if not (cast.double() == folded).all():
        raise errors.WrongValue("weight", f"exact in {dtype} once folded", "a value that is not")
    return cast
