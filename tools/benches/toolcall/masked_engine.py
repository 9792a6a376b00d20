"""vLLM alone with a worker's settings, timed with and without a grammar.

    python -m benches.toolcall.masked_engine     (settings as a worker's: ENGINE_*, VLLM_*)

Reads one JSON line per request ({"prompt": [token ids], "tokens": n, "grammar": text or null}),
generates exactly n tokens greedily and answers {"seconds_a_token": seconds}, counted from the first
token on; says {"ready": true} first.
"""

import asyncio
import json
import sys
import time
from typing import Any

from engine.settings import EngineSettings


async def seconds_a_token(llm: Any, request: dict[str, Any], number: int) -> float:
    """Seconds between the tokens of one answer."""
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    grammar = request["grammar"]
    params = SamplingParams(
        temperature=0.0,
        max_tokens=request["tokens"],
        min_tokens=request["tokens"],
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        structured_outputs=StructuredOutputsParams(grammar=grammar) if grammar else None,
    )
    first, count = 0.0, 0
    prompt = TokensPrompt(prompt_token_ids=request["prompt"])
    async for output in llm.generate(prompt, params, f"masked-{number}"):
        if not count:
            first = time.perf_counter()
        count += len(output.outputs[0].token_ids)
    if count != request["tokens"]:
        raise RuntimeError(f"expected {request['tokens']} tokens, got {count}")
    return (time.perf_counter() - first) / (count - 1)


async def main() -> None:
    """Serves standard input until it ends."""
    from vllm.config import StructuredOutputsConfig
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
            enable_prefix_caching=False,
            enforce_eager=True,
            structured_outputs_config=StructuredOutputsConfig(backend="xgrammar"),
        )
    )
    print(json.dumps({"ready": True}), flush=True)
    number = 0
    while line := await asyncio.to_thread(sys.stdin.readline):
        number += 1
        seconds = await seconds_a_token(llm, json.loads(line), number)
        print(json.dumps({"seconds_a_token": seconds}), flush=True)
    llm.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
