"""vLLM's attention backend over the kernel: sparse MLA with an nvfp4_ds_mla cache of 352-byte rows.

It takes the place of the staged path of FLASHMLA_SPARSE (64 padded heads) for the tokens that
attend over chosen rows, decode and prefill alike; a prefill short enough for dense attention stays
vLLM's. Import it inside a vLLM process only: it needs vLLM, no GPU.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from vllm.config import VllmConfig, get_current_vllm_config
from vllm.model_executor.layers.attention.sparse_mla_attention import (
    SparseMLACommonImpl,
    SparseMLACommonMetadata,
    SparseMLACommonMetadataBuilder,
)
from vllm.platforms.interface import DeviceCapability
from vllm.v1.attention.backend import AttentionBackend, AttentionCGSupport, MultipleOf
from vllm.v1.attention.backends.mla.sparse_utils import (
    align_blocks_to_rows,
    flat_kv_row_view,
    triton_convert_req_index_to_global_index,
    triton_filter_and_convert_dcp_index,
)
from vllm.v1.kv_cache_interface import AttentionSpec

from sparse_mla import device as kernel
from sparse_mla import row
from sparse_mla.api import nvfp4_sparse_mla_decode
from sparse_mla.vllm_plugin import NAME

DECODE_TOKENS = 128
"""Query tokens up to which a request counts as decoding, whatever a rank's heads; not measured.
vLLM 0.32's FlashMLA and FlashInfer sparse backends take as many with 16 or 32 heads, 256 with 64
and up to 1,024 with 128."""


class SparseMlaBackend(AttentionBackend):  # type: ignore[misc]  # vLLM is not typed here
    """What vLLM's selector asks."""

    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.bfloat16]
    supported_kv_cache_dtypes: ClassVar[list[str]] = ["nvfp4_ds_mla"]

    @staticmethod
    def get_name() -> str:
        """The name it is selected by."""
        return NAME

    @staticmethod
    def get_impl_cls() -> type["SparseMlaImpl"]:
        """The attention."""
        return SparseMlaImpl

    @staticmethod
    def get_builder_cls() -> type["SparseMlaMetadataBuilder"]:
        """The metadata's builder."""
        return SparseMlaMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(
        kv_cache_spec: Any = None,  # noqa: ARG004 - vLLM passes it
    ) -> list[int | MultipleOf]:
        """Any: the kernel reads rows, wherever they lie."""
        return [MultipleOf(1)]

    @classmethod
    def customize_spec(cls, spec: AttentionSpec) -> AttentionSpec:
        """Blocks a whole number of rows apart, so that an index can count rows."""
        return align_blocks_to_rows(spec)

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        """512 latent and 64 rope values."""
        return [row.HEAD_SIZE]

    @classmethod
    def is_mla(cls) -> bool:
        """It is."""
        return True

    @classmethod
    def is_sparse(cls) -> bool:
        """It is."""
        return True

    @classmethod
    def supports_compute_capability(cls, capability: DeviceCapability) -> bool:
        """10.0 and 10.3. The kernel runs on 9.0 too, but vLLM writes these rows on SM100 alone."""
        return (capability.major, capability.minor) in ((10, 0), (10, 3))


@dataclass
class SparseMlaMetadata(SparseMLACommonMetadata):  # type: ignore[misc]  # as above
    """Nothing beyond what every sparse backend gets."""


class SparseMlaMetadataBuilder(
    SparseMLACommonMetadataBuilder[SparseMlaMetadata]  # type: ignore[misc]  # as above
):
    """vLLM's builder; a launch reads no host lengths, so uniform decode batches can be captured."""

    metadata_cls = SparseMlaMetadata
    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_BATCH

    def __init__(
        self,
        kv_cache_spec: AttentionSpec,
        layer_names: list[str],
        vllm_config: VllmConfig,
        device: torch.device,
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self._init_reorder_batch_threshold(
            DECODE_TOKENS, supports_spec_as_decode=True, supports_dcp_with_varlen=True
        )
        if device.type == "cuda":
            kernel.prepare(torch.cuda.current_device() if device.index is None else device.index)


class SparseMlaImpl(SparseMLACommonImpl[SparseMlaMetadata]):  # type: ignore[misc]  # as above
    """The attention of one layer."""

    can_return_lse_for_decode = True
    supports_dcp = True
    lse_base_on_e = True

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int,
        alibi_slopes: list[float] | None,
        sliding_window: int | None,
        kv_cache_dtype: str,
        logits_soft_cap: float | None,
        attn_type: str,
        kv_sharing_target_layer_name: str | None,
        **mla_args: Any,  # vLLM's own; their names change between versions
    ) -> None:
        if alibi_slopes or sliding_window or logits_soft_cap:
            raise NotImplementedError(f"{NAME} has no ALiBi, sliding window or soft cap")
        if get_current_vllm_config().attention_config.hisparse_config is not None:
            raise NotImplementedError(
                f"{NAME} reads the cache on the device; HiSparse keeps it on the host"
            )
        super().__init__(
            num_heads,
            head_size,
            scale,
            num_kv_heads,
            alibi_slopes,
            sliding_window,
            kv_cache_dtype,
            logits_soft_cap,
            attn_type,
            kv_sharing_target_layer_name,
            **mla_args,
        )

    def forward_mqa(
        self,
        q: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        kv_c_and_k_pe_cache: torch.Tensor,
        attn_metadata: SparseMlaMetadata,
        layer: Any,  # noqa: ARG002 - vLLM passes it
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attention of the tokens in `q` over the rows the indexer chose."""
        query = torch.cat(q, dim=-1) if isinstance(q, tuple) else q
        rows, block_stride_rows = flat_kv_row_view(
            kv_c_and_k_pe_cache.view(torch.uint8), attn_metadata.block_size
        )
        indices = self._chosen_rows(len(query), attn_metadata, block_stride_rows)
        result = nvfp4_sparse_mla_decode(
            query, rows, indices, self.scale, return_lse=self.need_to_return_lse_for_decode
        )
        # Without rows of its own a rank returns (0, -inf), the identity of vLLM's merge over ranks.
        return result if isinstance(result, tuple) else (result, None)

    def _chosen_rows(
        self, tokens: int, attn_metadata: SparseMlaMetadata, block_stride_rows: int
    ) -> torch.Tensor:
        """The indexer's positions in each request as rows of the cache."""
        assert self.topk_indices_buffer is not None
        chosen = self.topk_indices_buffer[:tokens]
        shared = {
            "BLOCK_SIZE": attn_metadata.block_size,
            "BLOCK_STRIDE_ROWS": block_stride_rows,
            "NUM_TOPK_TOKENS": chosen.shape[1],
        }
        requests, table = attn_metadata.req_id_per_token[:tokens], attn_metadata.block_table
        if self.dcp_world_size > 1:
            return triton_filter_and_convert_dcp_index(
                requests,
                table,
                chosen,
                dcp_size=self.dcp_world_size,
                dcp_rank=self.dcp_rank,
                cp_kv_cache_interleave_size=attn_metadata.cp_kv_cache_interleave_size,
                compact_valid_to_front=False,
                **shared,
            )
        return triton_convert_req_index_to_global_index(requests, table, chosen, **shared)
