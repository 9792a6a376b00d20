"""vLLM's configuration of a worker: sizes, KV events for the router, and both KV connectors.

NIXL moves a request's blocks from prefill to decode; Mooncake's store keeps blocks for later
requests. vLLM's MultiConnector asks them in order and loads a prompt from the first that has it.
"""

from typing import Any

from engine.settings import EngineSettings, Role

NIXL_ROLES: dict[Role, str] = {"prefill": "kv_producer", "decode": "kv_consumer"}


def kv_transfer_config(settings: EngineSettings, role: Role) -> dict[str, Any]:
    """Arguments of vLLM's KVTransferConfig for this role."""
    nixl = {
        "kv_connector": "NixlConnector",
        "kv_role": NIXL_ROLES[role],
        "kv_buffer_device": "cpu",
        "kv_connector_extra_config": {"kv_lease_duration": settings.kv_lease_s},
    }
    # `recompute` instead of the default `fail`: lost KV costs time, not the request.
    policy = {"kv_load_failure_policy": "recompute"}
    if settings.mooncake_config is None:
        return {**nixl, **policy}
    store = {"kv_connector": "MooncakeStoreConnector", "kv_role": "kv_both"}
    return {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"connectors": [nixl, store]},
        **policy,
    }


def async_engine_args(settings: EngineSettings, role: Role, kv_events_endpoint: str) -> Any:
    """vLLM's AsyncEngineArgs; KV events for the router go out on `kv_events_endpoint`."""
    from vllm.config import KVEventsConfig, KVTransferConfig, StructuredOutputsConfig
    from vllm.engine.arg_utils import AsyncEngineArgs

    return AsyncEngineArgs(
        model=str(settings.model_dir),
        served_model_name=[settings.model_name],
        # The router tokenises and detokenises.
        skip_tokenizer_init=False,
        dtype=settings.dtype,
        max_model_len=settings.max_model_len,
        block_size=settings.block_tokens,
        max_num_batched_tokens=settings.max_batched_tokens,
        max_num_seqs=settings.max_running,
        enable_prefix_caching=True,
        enable_chunked_prefill=True,
        # Compiling saves less per token on CPU than it costs at start.
        enforce_eager=True,
        kv_events_config=KVEventsConfig(
            enable_kv_cache_events=True, publisher="zmq", endpoint=kv_events_endpoint
        ),
        kv_transfer_config=KVTransferConfig(**kv_transfer_config(settings, role)),
        # `auto` would try another backend for a grammar that xgrammar refuses, and the first
        # request's backend stays the engine's for good.
        structured_outputs_config=StructuredOutputsConfig(backend="xgrammar"),
    )
