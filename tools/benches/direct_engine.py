"""vLLM alone, with a worker's own settings but no connector, router or gateway: the yardstick.

    python -m benches.direct_engine     (settings as a worker's: ENGINE_*, VLLM_*)

Reads one JSON line per request ({"prompt": [token ids], "max_tokens": n}) and answers with one JSON
line ({"ttft_s": seconds, "token_ids": [...]}); says {"ready": true} first. Greedy.
"""

import asyncio
import json
import sys
import time
from typing import Any

from engine.settings import EngineSettings


async def answer(llm: Any, request: dict[str, Any], number: int) -> dict[str, Any]:
    """One greedy request, timed from its hand-over to its first token."""
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt
    from vllm.sampling_params import RequestOutputKind

    params = SamplingParams(
        temperature=0.0,
        max_tokens=request["max_tokens"],
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )
    started, first, token_ids = time.perf_counter(), None, []
    prompt = TokensPrompt(prompt_token_ids=request["prompt"])
    async for output in llm.generate(prompt, params, f"direct-{number}"):
        if first is None:
            first = time.perf_counter() - started
        token_ids.extend(output.outputs[0].token_ids)
    return {"ttft_s": first, "token_ids": token_ids}


async def main() -> None:
    """Serves standard input until it ends."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    settings = EngineSettings()  # type: ignore[call-arg]  # filled from the environment
    llm = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=str(settings.model_dir),
            dtype=settings.dtype,
            max_model_len=settings.max_model_len,
            block_size=settings.block_tokens,
            max_num_batched_tokens=settings.max_batched_tokens,
            max_num_seqs=settings.max_running,
            enable_prefix_caching=True,
            enforce_eager=True,
        )
    )
    print(json.dumps({"ready": True}), flush=True)
    number = 0
    while line := await asyncio.to_thread(sys.stdin.readline):
        number += 1
        print(json.dumps(await answer(llm, json.loads(line), number)), flush=True)
    llm.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
