"""The strides of a pool are those that vLLM gives its tensors."""

from itertools import product
from types import SimpleNamespace

import pytest

from kv_layout.caches import Cache
from kv_layout.layouts import KVLayout
from kv_layout.pools import Pool

pytestmark = [
    pytest.mark.engine,
    # Importing vLLM and torch warns of their own deprecations.
    pytest.mark.filterwarnings("ignore"),
]


def test_the_layouts_are_vllms():
    from vllm.v1.kv_cache_layout import KVCacheLayout

    axes = {layout.name: "".join("LBHNC"[at] for at in layout.value) for layout in KVCacheLayout}

    assert axes == {layout.name: layout.value for layout in KVLayout}


@pytest.mark.parametrize("layout", KVLayout)
def test_one_cache_has_vllms_strides(layout):
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, compute_layout_strides
    from vllm.v1.kv_cache_layout import KVCacheLayout

    spec = FullAttentionSpec(block_size=32, num_kv_heads=4, head_size=64, dtype=torch.bfloat16)
    pool = Pool(layout, (Cache("kv", 6, 4, 256),), 10, 32)

    at = pool.strides["kv"]

    upstream = compute_layout_strides(spec, 10, 6, KVCacheLayout[layout.name])
    assert (at.layer, at.block, at.head, at.token, 1) == upstream


@pytest.mark.parametrize(
    ("layout", "latent_layers"), list(product(["LBHNC", "LBNHC", "BLHNC", "BLNHC"], [4, 7]))
)
def test_latent_and_indexer_caches_lie_where_vllm_puts_them(layout, latent_layers):
    import torch
    from vllm.v1.core.kv_cache_utils import get_kv_cache_config_from_groups
    from vllm.v1.kv_cache_interface import (
        KVCacheGroupSpec,
        MLAAttentionSpec,
        UniformTypeKVCacheSpecs,
    )
    from vllm.v1.kv_cache_layout import KVCacheLayout

    specs = {
        name: MLAAttentionSpec(block_size=64, num_kv_heads=1, head_size=size, dtype=torch.uint8)
        for name, size in [
            *((f"latent.{at}", 656) for at in range(latent_layers)),
            *((f"indexer.{at}", 132) for at in range(4)),
        ]
    }
    group = KVCacheGroupSpec(list(specs), UniformTypeKVCacheSpecs(64, specs))
    config = SimpleNamespace(
        attention_config=SimpleNamespace(hisparse_config=None),
        cache_config=SimpleNamespace(
            get_resolved_kv_cache_layout=lambda: KVCacheLayout[layout],
            num_gpu_blocks_override=10,
            prefix_cache_retention_interval=None,
        ),
    )
    caches = (Cache("latent", latent_layers, 1, 656), Cache("indexer", 4, 1, 132))
    pool = Pool(KVLayout.named(layout), caches, 10, 64)

    upstream = get_kv_cache_config_from_groups(config, [group], 1 << 30)

    places = {
        tensor.layers[0].split(".")[0]: (tensor.offset, tensor.layer_stride, tensor.block_stride)
        for tensor in upstream.kv_cache_tensors
    }
    assert {tensor.size for tensor in upstream.kv_cache_tensors} == {pool.size_bytes}
    assert places == {name: (at.offset, at.layer, at.block) for name, at in pool.strides.items()}
