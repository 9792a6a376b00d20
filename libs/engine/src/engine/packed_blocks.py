"""Block-major KV (BLHNC) on vLLM's CPU backend, moved by NIXL as one row per block.

A `vllm.general_plugins` entry point. It changes nothing until `VLLM_KV_CACHE_LAYOUT=BLHNC` asks for
the layout; then the prefill and the decode worker both need it. What vLLM 0.32 lacks:

- the CPU attention backend lists LBHNC only, although its kernels take the block's stride from the
  tensor (vllm/v1/attention/backends/cpu_attn.py, `supported_kv_cache_layouts`);
- the NIXL worker makes one region per layer of a BLHNC cache, since each layer's page is contiguous
  (nixl/base_worker.py, `register_kv_caches`, `page_contiguous`), so that packing saves no
  descriptor. It is given the rows instead: one region, one descriptor per block.

Invariant: rows move only between workers whose rows are alike. A row holds every layer and head, so
a part of it is not what another tensor-parallel or block size would read: such peers are refused.
"""

import inspect
import os
from typing import Any

from engine.errors import PeerNotPacked

PACKED = "BLHNC"
"""The layout that vLLM's `VLLM_KV_CACHE_LAYOUT` must name."""


def install() -> None:
    """The plugin's entry point; safe to call twice."""
    if os.environ.get("VLLM_KV_CACHE_LAYOUT") != PACKED:
        return
    _let_cpu_attention_read_packed_blocks()
    _give_nixl_rows()


def is_layout_unlisted() -> bool:
    """Whether this vLLM's CPU backend, as shipped, lacks the layout."""
    from vllm.v1.attention.backends import cpu_attn

    return "return (KVCacheLayout.LBHNC,)" in inspect.getsource(cpu_attn)


def is_region_per_layer() -> bool:
    """Whether this vLLM's NIXL worker, as shipped, makes a region of each contiguous page."""
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_worker

    return "not page_contiguous" in inspect.getsource(base_worker)


def _let_cpu_attention_read_packed_blocks() -> None:
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
    from vllm.v1.kv_cache_layout import KVCacheLayout

    stock = CPUAttentionBackend.supported_kv_cache_layouts()
    if KVCacheLayout[PACKED] in stock:
        return

    def supported_kv_cache_layouts(cls: type) -> tuple[KVCacheLayout, ...]:  # noqa: ARG001  # a classmethod
        return (*stock, KVCacheLayout[PACKED])

    CPUAttentionBackend.supported_kv_cache_layouts = classmethod(supported_kv_cache_layouts)


def _give_nixl_rows() -> None:
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker import (
        NixlBaseConnectorWorker,
    )

    if getattr(NixlBaseConnectorWorker, "knows_packed_rows", False):
        return
    register = NixlBaseConnectorWorker.register_kv_caches
    validate = NixlBaseConnectorWorker._validate_remote_agent_handshake

    def register_kv_caches(worker: Any, kv_caches: dict[str, Any]) -> None:
        rows = rows_of(worker, kv_caches)
        worker.moves_packed_rows = rows is not None
        if rows is None:
            register(worker, kv_caches)
            return
        register(worker, rows)
        # What reads single layers afterwards gets the layers.
        worker.device_kv_caches = kv_caches

    def validate_remote(worker: Any, peer: Any, remote_tp_size: int, *rest: Any) -> None:
        if worker.moves_packed_rows:
            require_same_rows(worker, peer, remote_tp_size)
        validate(worker, peer, remote_tp_size, *rest)

    NixlBaseConnectorWorker.register_kv_caches = register_kv_caches
    NixlBaseConnectorWorker._validate_remote_agent_handshake = validate_remote
    NixlBaseConnectorWorker.knows_packed_rows = True


def rows_of(worker: Any, kv_caches: dict[str, Any]) -> dict[str, Any] | None:
    """Each layer's name with the whole pool as int8 [blocks, 1, 1, row bytes].

    None where the blocks are no rows that move as one: another layout, a staging buffer, several
    cache groups, or layers of several kinds or allocations.
    """
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    if worker.kv_cache_layout != PACKED or worker.use_host_buffer or not kv_caches:
        return None
    if len(worker.kv_cache_config.transfer_groups) != 1 or worker.pp_size > 1:
        return None
    caches = list(kv_caches.values())
    first = caches[0]
    storage = first.untyped_storage()
    row_bytes = first.stride(0) * first.element_size()
    if any(
        type(worker._layer_specs.get(name)) is not FullAttentionSpec
        or cache.untyped_storage().data_ptr() != storage.data_ptr()
        or cache.stride(0) * cache.element_size() != row_bytes
        or cache.shape[0] * row_bytes != storage.nbytes()
        for name, cache in kv_caches.items()
    ):
        return None
    rows = torch.empty(0, dtype=torch.int8, device=first.device).set_(
        storage, 0, (first.shape[0], 1, 1, row_bytes), (row_bytes, row_bytes, row_bytes, 1)
    )
    return dict.fromkeys(kv_caches, rows)


def require_same_rows(worker: Any, peer: Any, remote_tp_size: int) -> None:
    """Raises PeerNotPacked unless the peer's rows hold the same bytes in the same order."""
    for what, expected, got in (
        ("KV cache layout", PACKED, peer.kv_cache_layout),
        ("tensor-parallel size", worker.transfer_tp_size, remote_tp_size),
        ("block size", worker.block_size, peer.block_size),
        ("regions of", worker.block_len_per_layer, list(peer.block_lens)),
    ):
        if expected != got:
            raise PeerNotPacked(what, expected, got)
