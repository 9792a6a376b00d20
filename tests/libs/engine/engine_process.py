"""A real vLLM engine behind the real backend, driven by lines; the process of `real_engine`.

    python -m tests.libs.engine.engine_process      (settings as a worker's: ENGINE_*, VLLM_*)

Nothing of the cluster is around it: no Dynamo runtime, no NATS, no KV connectors. It says
{"ready": seconds} first. Each line that it reads is a call: {"id", "request": Dynamo's request,
"forced": token ids or null}; each line that it writes is a chunk or an error of one call.
"""

import asyncio
import json
import sys
import tempfile
import time

from dynamo._core import Context

from engine import backend as backend_module
from engine.backend import VllmBackend
from engine.engine_args import async_engine_args
from engine.grammars import missing_hooks
from engine.settings import EngineSettings
from engine.work import Work

FORCED_TOKENS = "tests.libs.engine.forced_tokens:ForcedTokens"


def _with_scripts():
    """Lets a request's script through; in a cluster nothing but our own keys gets to vLLM."""
    stock = backend_module.sampling_params

    def sampling_params(request, *arguments):
        params = stock(request, *arguments)
        if script := request["extra_args"].pop("forced_tokens", None):
            params.extra_args = {**(params.extra_args or {}), "forced_tokens": script}
        return params

    backend_module.sampling_params = sampling_params


def _say(**fields):
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


async def _serve(backend, call):
    request = call["request"]
    request.setdefault("extra_args", {})["forced_tokens"] = call["forced"]
    try:
        async for chunk in backend.generate(request, Context(call["id"], {})):
            _say(id=call["id"], chunk=chunk)
    except Exception as error:  # noqa: BLE001  # told to the caller, as Dynamo's worker does
        _say(id=call["id"], error=type(error).__name__, message=str(error))
    _say(id=call["id"], is_over=True)


async def main():
    from vllm.v1.engine.async_llm import AsyncLLM

    began = time.monotonic()
    _with_scripts()
    settings = EngineSettings()
    with tempfile.TemporaryDirectory() as ipc_folder:
        args = async_engine_args(settings, "decode", f"ipc://{ipc_folder}/kv-events")
        args.kv_transfer_config = args.kv_events_config = None
        args.logits_processors = [FORCED_TOKENS]
        assert not missing_hooks()
        llm = AsyncLLM.from_engine_args(args)
        backend = VllmBackend(Work(settings, "decode", "test", ipc_folder), membership=None)
        backend._llm = llm
        _say(ready=time.monotonic() - began)
        async with asyncio.TaskGroup() as calls:
            while line := await asyncio.to_thread(sys.stdin.readline):
                calls.create_task(_serve(backend, json.loads(line)))
        llm.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
