"""vLLM alone, with a worker's own settings but no connector, router or gateway: the yardstick.

`direct_engine` starts this module as a process of its own (settings as a worker's: ENGINE_*,
VLLM_*). It reads one JSON line per request ({"prompt": [token ids], "max_tokens": n, "grammar":
text or null, "is_exact": whether to go on to n tokens}), answers greedily with one JSON line, and
says {"ready": true} first.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.settings import EngineSettings
from launcher.runenv import ROOT


@dataclass(frozen=True)
class DirectAnswer:
    """What came; the times are seconds: to the first token, and from it to the last."""

    ttft_s: float
    decode_s: float
    token_ids: list[int]


Ask = Callable[..., DirectAnswer]
"""(prompt, max_tokens, grammar=None, is_exact=False)."""


@contextmanager
def direct_engine(model_dir: Path, model_name: str) -> Iterator[Ask]:
    """An engine that answers one request at a time, until the context ends."""
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "tools"),
        "ENGINE_MODEL_DIR": str(model_dir),
        "ENGINE_MODEL_NAME": model_name,
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "benches.direct_engine"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    requests, replies = process.stdin, process.stdout
    assert requests is not None
    assert replies is not None

    def reply() -> Any:
        for line in replies:
            if line.startswith("{"):  # other lines are prints of some library
                return json.loads(line)
        raise RuntimeError(f"the engine alone ended with {process.wait()}")

    def ask(
        prompt: list[int], max_tokens: int, grammar: str | None = None, is_exact: bool = False
    ) -> DirectAnswer:
        wanted = {
            "prompt": prompt,
            "max_tokens": max_tokens,
            "grammar": grammar,
            "is_exact": is_exact,
        }
        requests.write(json.dumps(wanted) + "\n")
        requests.flush()
        return DirectAnswer(**reply())

    try:
        reply()
        yield ask
    finally:
        requests.close()
        process.wait(timeout=60)


async def answer(llm: Any, request: dict[str, Any], number: int) -> DirectAnswer:
    """One greedy request, timed from its hand-over."""
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    grammar = request["grammar"]
    params = SamplingParams(
        temperature=0.0,
        max_tokens=request["max_tokens"],
        min_tokens=request["max_tokens"] if request["is_exact"] else 0,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        structured_outputs=None if grammar is None else StructuredOutputsParams(grammar=grammar),
    )
    token_ids: list[int] = []
    started = first = last = time.perf_counter()
    prompt = TokensPrompt(prompt_token_ids=request["prompt"])
    async for output in llm.generate(prompt, params, f"direct-{number}"):
        last = time.perf_counter()
        if not token_ids:
            first = last
        token_ids.extend(output.outputs[0].token_ids)
    return DirectAnswer(first - started, last - first, token_ids)


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
            enable_prefix_caching=True,
            enforce_eager=True,
            structured_outputs_config=StructuredOutputsConfig(backend="xgrammar"),
        )
    )
    print(json.dumps({"ready": True}), flush=True)
    number = 0
    while line := await asyncio.to_thread(sys.stdin.readline):
        number += 1
        print(json.dumps(asdict(await answer(llm, json.loads(line), number))), flush=True)
    llm.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
