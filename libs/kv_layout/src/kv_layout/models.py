"""What known models keep per token, for plans; sizes from their published configurations.

An engine never reads this table: it takes the shapes from the model it loaded.
"""

from dataclasses import dataclass

from kv_layout.caches import Cache
from kv_layout.errors import UnknownName

LATENT_ROW_BYTES = {"bf16": 1152, "fp8": 576, "fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
"""Bytes of one MLA row, 512 latent and 64 rope values, by vLLM's `--kv-cache-dtype`.

Source: vllm/v1/attention/backends/mla/flashmla_sparse.py (0.32).
"""
INDEXER_ROW_BYTES = 132
"""128 e4m3 values and one float32 scale (vllm/model_executor/models/deepseek_v2.py, Indexer)."""
VALUE_BYTES = {"bf16": 2, "fp8": 1}
"""Bytes of one key or value element of a model without latents."""


@dataclass(frozen=True)
class LatentModel:
    """MLA with a sparse indexer: every layer stores a latent row, some an indexer key beside it.

    Both counts include the one layer for speculative tokens, which always has an indexer.
    """

    latent_layers: int
    indexer_layers: int

    def caches(self, kv_dtype: str) -> tuple[Cache, ...]:
        """Latent and indexer caches; raises UnknownName for another dtype."""
        if kv_dtype not in LATENT_ROW_BYTES:
            raise UnknownName("KV dtype", kv_dtype, LATENT_ROW_BYTES)
        return (
            Cache("latent", self.latent_layers, 1, LATENT_ROW_BYTES[kv_dtype]),
            Cache("indexer", self.indexer_layers, 1, INDEXER_ROW_BYTES),
        )


@dataclass(frozen=True)
class HeadModel:
    """Grouped-query attention: keys and values of each head side by side in one row."""

    layers: int
    kv_heads: int
    head_dim: int

    def caches(self, kv_dtype: str) -> tuple[Cache, ...]:
        """One cache of keys and values; raises UnknownName for another dtype."""
        if kv_dtype not in VALUE_BYTES:
            raise UnknownName("KV dtype", kv_dtype, VALUE_BYTES)
        row = 2 * self.head_dim * VALUE_BYTES[kv_dtype]
        return (Cache("kv", self.layers, self.kv_heads, row),)


MODELS: dict[str, LatentModel | HeadModel] = {
    "glm-5": LatentModel(latent_layers=79, indexer_layers=79),
    # Indexers in layers 0, 1, 2, 6, 10, ... 74; the others reuse the layer before (IndexShare).
    "glm-5.2": LatentModel(latent_layers=79, indexer_layers=22),
    "deepseek-v3.2": LatentModel(latent_layers=62, indexer_layers=62),
    "llama-3.1-70b": HeadModel(layers=80, kv_heads=8, head_dim=128),
    "smollm2-135m": HeadModel(layers=30, kv_heads=3, head_dim=64),
}


def named(name: str) -> LatentModel | HeadModel:
    """The model of this name; raises UnknownName."""
    if name not in MODELS:
        raise UnknownName("model", name, MODELS)
    return MODELS[name]
