"""Latents from real activations: SmolLM2's keys and values factored into 512 dims, two layers at
once.

This is not a trained MLA model. None can be had here, so one is made of what can, in the manner of
TransMLA (arXiv 2502.07864) and of cross-layer SVD (xKV, arXiv 2503.18893):

- a layer's three key heads are rotated into each other, frequency by frequency, so that one of them
  holds most of what rotary position acts on: it becomes the shared rope key of 64, with its
  rotation;
- the other two key heads (128 dims, now without position) and the three value heads (192) of a
  layer and of the next one make 640 dims; their principal 512 directions are the latent;
- each row is divided by its rms, as kv_a's norm would.

Activations, weights and text are real; the basis of the latent is the conversion's, where training
would choose another. It is therefore measured in three: principal directions in order, in random
order, and randomly rotated. Outputs are compared with the converted attention, not with SmolLM2's.
"""

import pydoc_data.topics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from nvfp4 import row
from nvfp4.calibrate import Context

LABEL = "SmolLM2-135M converted, not a trained MLA model"
LAYERS = (2, 8, 14, 20, 26)
"""The first of each pair."""
Basis = Literal["ordered", "shuffled", "rotated"]
BASES: tuple[Basis, ...] = ("ordered", "shuffled", "rotated")
CALIBRATION_TOKENS, CALIBRATION_CONTEXTS = 512, 4
EVALUATION_TOKENS = 1024
QUERY_STEP = 8
"""Every so many tokens ask, in the second half of a context."""
HEADS, KEY_HEADS, HEAD = 9, 3, 64
FREQUENCIES = HEAD // 2
PLAIN_KEYS = (KEY_HEADS - 1) * HEAD
LAYER_DIMS = PLAIN_KEYS + KEY_HEADS * HEAD
SOFTMAX_SCALE = HEAD**-0.5


@dataclass(frozen=True)
class Layer:
    """One layer's attention over one context, rope applied."""

    rope_keys: torch.Tensor  # [n, 64]
    content: torch.Tensor  # [n, 320]: keys without position, then values
    rope_queries: torch.Tensor  # [n, 9, 64]
    plain_queries: torch.Tensor  # [n, 9, 128]


@dataclass(frozen=True)
class Converted:
    """One layer of the pair in one basis: contexts to calibrate on and one of other text."""

    layer: int
    basis: Basis
    calibration: list[Context]
    evaluation: Context


def convert(model_dir: Path) -> Iterator[Converted]:
    """Both layers of each pair in each basis."""
    model = _model(model_dir)
    activations = [_activations(model, tokens) for tokens in _contexts(model_dir)]
    for first in LAYERS:
        generator = torch.Generator().manual_seed(first)
        pairs = [_layers(activations, first), _layers(activations, first + 1)]
        stacked = [
            torch.cat([own.content, other.content], dim=1)
            for own, other in zip(*pairs, strict=True)
        ]
        directions = _directions(torch.cat(stacked[:-1]))
        for basis in BASES:
            down = _in_basis(directions, basis, generator)
            for place, layers in enumerate(pairs):
                made = [
                    _context(layer, content, down, place)
                    for layer, content in zip(layers, stacked, strict=True)
                ]
                yield Converted(first + place, basis, made[:-1], made[-1])


def _contexts(model_dir: Path) -> list[torch.Tensor]:
    """Tokens of Python's documentation: calibration contexts, then one from another part."""
    from tokenizers import Tokenizer

    topics = pydoc_data.topics.topics
    text = "\n".join(topics[name] for name in sorted(topics))
    tokens = Tokenizer.from_file(str(model_dir / "tokenizer.json")).encode(text).ids
    half = len(tokens) // 2
    spans = [
        *((at * CALIBRATION_TOKENS, CALIBRATION_TOKENS) for at in range(CALIBRATION_CONTEXTS)),
        (half, EVALUATION_TOKENS),
    ]
    return [torch.tensor([tokens[at : at + count]]) for at, count in spans]


def _activations(model: Any, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    """Outputs of the pairs' q, k and v projections, before rope, by `layer.letter`."""
    kept: dict[str, torch.Tensor] = {}

    def keep(name: str) -> Any:
        def hook(_module: Any, _inputs: Any, output: torch.Tensor) -> None:
            kept[name] = output[0].float()

        return hook

    hooks = [
        getattr(model.layers[layer].self_attn, f"{letter}_proj").register_forward_hook(
            keep(f"{layer}.{letter}")
        )
        for first in LAYERS
        for layer in (first, first + 1)
        for letter in "qkv"
    ]
    with torch.no_grad():
        model(tokens)
    for hook in hooks:
        hook.remove()
    return kept


def _model(model_dir: Path) -> Any:
    """The decoder without its head, float32."""
    from transformers import LlamaModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    return LlamaModel.from_pretrained(model_dir, dtype=torch.float32).eval()


def _layers(activations: list[dict[str, torch.Tensor]], layer: int) -> list[Layer]:
    """The layer in each context; key heads are rotated as all but the last context say."""
    keys = [_complex(each[f"{layer}.k"], KEY_HEADS) for each in activations]
    fitted = torch.cat(keys[:-1])
    alike = torch.einsum("nhf,ngf->fhg", fitted, fitted.conj()).real
    rotation = torch.linalg.eigh(alike).eigenvectors.flip(-1).to(fitted.dtype)  # [f, head, part]
    layers = []
    for each, key in zip(activations, keys, strict=True):
        query = _complex(each[f"{layer}.q"], HEADS)
        key_parts = torch.einsum("nhf,fhc->ncf", key, rotation)
        own = rotation.repeat_interleave(HEADS // KEY_HEADS, dim=1)
        query_parts = torch.einsum("nhf,fhc->nhcf", query, own)
        turns = _turns(len(key))
        plain = _real(key_parts[:, 1:]).reshape(-1, PLAIN_KEYS)
        layers.append(
            Layer(
                _real(key_parts[:, 0] * turns),
                torch.cat([plain, each[f"{layer}.v"]], dim=1),
                _real(query_parts[:, :, 0] * turns[:, None]),
                _real(query_parts[:, :, 1:]).reshape(-1, HEADS, PLAIN_KEYS),
            )
        )
    return layers


def _directions(content: torch.Tensor) -> torch.Tensor:
    """The 512 principal directions [640, 512] of what a pair keeps."""
    return torch.linalg.svd(content, full_matrices=False).Vh[: row.LATENT].T


def _in_basis(directions: torch.Tensor, basis: Basis, generator: torch.Generator) -> torch.Tensor:
    """The same space by other axes, still orthonormal."""
    match basis:
        case "ordered":
            return directions
        case "shuffled":
            return directions[:, torch.randperm(row.LATENT, generator=generator)]
        case "rotated":
            square = torch.randn(row.LATENT, row.LATENT, generator=generator)
            return directions @ torch.linalg.qr(square).Q


def _context(layer: Layer, content: torch.Tensor, down: torch.Tensor, place: int) -> Context:
    """Rows normalised; queries absorbed through the layer's own part of the factors."""
    latents = content @ down
    sizes = latents.square().mean(dim=1, keepdim=True).sqrt()
    asking = torch.arange(len(latents) // 2, len(latents), QUERY_STEP)
    up = down[place * LAYER_DIMS : place * LAYER_DIMS + PLAIN_KEYS] * sizes.mean()
    absorbed = layer.plain_queries[asking] @ up
    queries = torch.cat([absorbed, layer.rope_queries[asking]], dim=-1)
    return Context(latents / sizes, layer.rope_keys, queries, SOFTMAX_SCALE, asking + 1)


def _complex(values: torch.Tensor, heads: int) -> torch.Tensor:
    """[n, heads * 64] to complex [n, heads, 32]: rope turns element i with element i + 32."""
    halves = values.reshape(len(values), heads, 2, FREQUENCIES)
    return torch.complex(halves[:, :, 0].contiguous(), halves[:, :, 1].contiguous())


def _real(values: torch.Tensor) -> torch.Tensor:
    return torch.cat([values.real, values.imag], dim=-1)


def _turns(count: int) -> torch.Tensor:
    """Complex [n, 32] of rope's angles; SmolLM2's theta is 100,000."""
    angles = 100_000.0 ** (-torch.arange(FREQUENCIES) / FREQUENCIES)
    return torch.polar(torch.ones(count, FREQUENCIES), torch.arange(count)[:, None] * angles)
