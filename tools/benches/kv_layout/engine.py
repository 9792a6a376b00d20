"""One vLLM engine on the CPU that offers or reads KV: one JSON line in, one out.

    python -m benches.kv_layout.engine producer|consumer MODEL_DIR CONTEXT KV_DTYPE

In: {"prompt": [token ids], "offer": the producer's answer or null}. Out: {"tokens": [...], "offer":
{...}, "transfers": [{"descriptors", "bytes", "request_seconds", "seconds"}]}. The engine core runs
in this process, so that each read can be timed and the free blocks be shuffled: a fresh engine
hands out neighbours, which NIXL joins into one descriptor; after hours of traffic there are none.
"""

import json
import random
import sys
import time
from typing import Any

from engine.requests import OFFER_KV

BLOCK_TOKENS = 32
"""The smallest block that vLLM's CPU kernels take."""
ANSWER_TOKENS = 4


def main(role: str, model_dir: str, context: int, kv_dtype: str) -> None:
    """Serves standard input until it ends."""
    from vllm import LLM
    from vllm.config import KVTransferConfig

    transfers = _kept_transfers()
    llm = LLM(
        model=model_dir,
        dtype="bfloat16",
        max_model_len=context + 64,
        block_size=BLOCK_TOKENS,
        kv_cache_dtype=kv_dtype,
        max_num_batched_tokens=1024,
        max_num_seqs=2,
        enforce_eager=True,
        skip_tokenizer_init=True,
        # A repeated prompt costs the producer nothing; the consumer must read it again.
        enable_prefix_caching=role == "producer",
        kv_transfer_config=KVTransferConfig(
            kv_connector="NixlConnector",
            kv_role="kv_producer" if role == "producer" else "kv_consumer",
            kv_buffer_device="cpu",
            kv_load_failure_policy="fail",
        ),
    )
    _shuffle_free_blocks(llm)
    _say({"is_ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        transfers.clear()
        _say({**_answer(llm, role, request), "transfers": list(transfers)})


def _answer(llm: Any, role: str, request: dict[str, Any]) -> dict[str, Any]:
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt

    offer = dict(OFFER_KV) if role == "producer" else request["offer"]
    params = SamplingParams(
        temperature=0.0,
        max_tokens=1 if role == "producer" else ANSWER_TOKENS,
        ignore_eos=True,
        detokenize=False,
        extra_args={"kv_transfer_params": offer} if offer else None,
    )
    prompt = TokensPrompt(prompt_token_ids=request["prompt"])
    (output,) = llm.generate([prompt], params, use_tqdm=False)
    return {"tokens": list(output.outputs[0].token_ids), "offer": output.kv_transfer_params}


def _shuffle_free_blocks(llm: Any) -> None:
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    free = scheduler.kv_cache_manager.block_pool.free_block_queue
    blocks = free.popleft_n(free.num_free_blocks)
    random.Random(0).shuffle(blocks)
    free.append_n(blocks)


def _kept_transfers() -> list[dict[str, float]]:
    """What each read of this process took, as they end.

    `request_seconds`: making NIXL's request from the block lists. `seconds`: NIXL's telemetry, from
    posting it to the last byte.
    """
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.stats import NixlKVConnectorStats
    from vllm.distributed.nixl_utils import NixlWrapper

    kept: list[dict[str, float]] = []
    request_seconds: list[float] = []
    stock_record, stock_make = NixlKVConnectorStats.record_transfer, NixlWrapper.make_prepped_xfer

    def make_prepped_xfer(*args: Any, **named: Any) -> Any:
        started = time.perf_counter()
        handle = stock_make(*args, **named)
        request_seconds.append(time.perf_counter() - started)
        return handle

    def record_transfer(stats: Any, result: Any) -> None:
        if result is not None:
            kept.append(
                {
                    "descriptors": result.descCount,
                    "bytes": result.totalBytes,
                    "request_seconds": request_seconds.pop(0),
                    "seconds": result.xferDuration / 1e6,
                }
            )
        stock_record(stats, result)

    NixlWrapper.make_prepped_xfer = make_prepped_xfer
    NixlKVConnectorStats.record_transfer = record_transfer
    return kept


def _say(message: dict[str, Any]) -> None:
    sys.__stdout__.write(json.dumps(message) + "\n")  # type: ignore[union-attr]  # never closed here
    sys.__stdout__.flush()  # type: ignore[union-attr]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
