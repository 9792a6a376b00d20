"""Dynamo's request as vLLM needs it: sampling parameters and the KV handoff.

The handoff is trusted input made by our own router and workers. A client's `kv_transfer_params`
never gets here: one wrong block list kills vLLM's EngineCore
(vllm/distributed/kv_transfer/.../nixl/ base_worker.py, assertion on the remote block count).
"""

from collections.abc import Mapping
from typing import Any

from engine.grammars import PREFIX_KEY, prefix_tokens
from engine.settings import Role

OFFER_KV: Mapping[str, Any] = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
"""Asks vLLM's NIXL connector to keep the prompt's blocks for a reader instead of freeing them."""

HANDOFF_KEY = "kv_handoff"
HANDOFF_OFFER = "offer"
"""`extra_args[HANDOFF_KEY] == HANDOFF_OFFER` in a request to prefill: compute the prompt, offer its
KV. Without it a prefill worker answers the whole request, which is what the router falls back to
when no decode worker is left."""

SAMPLING_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "n",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)


def wants_offer(request: Mapping[str, Any], role: Role) -> bool:
    """True when this request asks a prefill worker for the prompt's KV only."""
    return role == "prefill" and (request.get("extra_args") or {}).get(HANDOFF_KEY) == HANDOFF_OFFER


def offered_kv(request: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The `kv_transfer_params` that a prefill worker answered with, None when decode prefills."""
    result = (request.get("prefill_result") or {}).get("disaggregated_params") or {}
    offer: Mapping[str, Any] | None = result.get("kv_transfer_params")
    return offer or None


def sampling_params(
    request: Mapping[str, Any], role: Role, defaults: Mapping[str, Any], max_model_len: int
) -> Any:
    """vLLM's SamplingParams of one request.

    Raises ValueError or vLLM's own client error for values out of range.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    options = request.get("sampling_options") or {}
    stop = request.get("stop_conditions") or {}
    output = request.get("output_options") or {}
    params = SamplingParams(**defaults)
    for name in SAMPLING_FIELDS:
        if options.get(name) is not None:
            setattr(params, name, options[name])
    for name in ("min_tokens", "ignore_eos"):
        if stop.get(name) is not None:
            setattr(params, name, stop[name])
    params.max_tokens = stop.get("max_tokens") or max(1, max_model_len - len(request["token_ids"]))
    params.stop_token_ids = sorted(
        {*(stop.get("stop_token_ids") or []), *(stop.get("stop_token_ids_hidden") or [])}
    )
    if output.get("logprobs") is not None:
        params.logprobs = output["logprobs"]
    params.detokenize = False
    params.output_kind = RequestOutputKind.DELTA
    extra_args: dict[str, Any] = {}
    if wants_offer(request, role):
        # No grammar either: decode samples the answer's first token, and masks it.
        params.max_tokens, params.min_tokens = 1, 0
        extra_args["kv_transfer_params"] = dict(OFFER_KV)
    else:
        if offer := offered_kv(request):
            extra_args["kv_transfer_params"] = dict(offer)
        if guided := options.get("guided_decoding"):
            if params.ignore_eos:
                raise ValueError(
                    "ignore_eos does not go with a grammar: behind its end nothing would be masked"
                )
            params.structured_outputs = StructuredOutputsParams(
                **{key: value for key, value in guided.items() if value is not None}
            )
            extra_args[PREFIX_KEY] = prefix_tokens(
                request.get("extra_args"), len(request["token_ids"])
            )
    params.extra_args = extra_args or None
    # setattr skips msgspec's own normalisation (greedy, end-of-sequence sets).
    params.__post_init__()
    return params
