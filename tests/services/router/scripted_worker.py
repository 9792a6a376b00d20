"""A worker whose engine is a script: real Dynamo on both sides, no model behind it.

Token i of an answer depends on all tokens before it, as a greedy model's would: so an answer that
is continued elsewhere must be equal to an undisturbed one, and any slip of one token shows.

    python -m tests.services.router.scripted_worker ROLE SCRIPT_FILE

SCRIPT_FILE is JSON that is read at every request:
    die_after     SIGKILL this process after so many tokens of the next answer
    refuse        raise EngineShutdown
    delay_s       wait before each token
    number        another one than before: the script is new, and begins with its first output
    outputs       lists of token ids; request number n under this script generates outputs[n],
                  then stops
    deaf          aborts that come by Dynamo do nothing
    is_continued  an output goes on behind what the prompt already holds of the answer
Its control port aborts as a real worker's does. Every request it got is appended to
SCRIPT_FILE.<role>.<pid>.requests as a JSON line.
"""

import asyncio
import hashlib
import json
import os
import signal
import sys
from pathlib import Path

from dynamo.common.backend import EngineConfig, LLMEngine, LlmRegistration, WorkerConfig
from dynamo.common.backend.run import run
from dynamo.common.constants import DisaggregationMode
from dynamo.llm.exceptions import EngineShutdown

from millrace.v1 import worker_pb2, worker_pb2_grpc
from wire import grpc_edge, nats_connection
from wire.heartbeat import Heartbeat, new_record
from wire.ids import new_instance

EOS = 2
FIRST_TOKEN, TOKENS = 500, 20_000
BLOCK_TOKENS = 32


def next_token(context: list[int]) -> int:
    digest = hashlib.sha256(repr(context).encode()).digest()
    return FIRST_TOKEN + int.from_bytes(digest[:4], "big") % TOKENS


def answer(prompt: list[int], count: int) -> list[int]:
    context = list(prompt)
    for _ in range(count):
        context.append(next_token(context))
    return context[len(prompt) :]


class ScriptedControl(worker_pb2_grpc.WorkerControlServicer):
    def __init__(self, engine: "ScriptedEngine") -> None:
        self.engine = engine

    async def AbortRequest(self, request, context):  # noqa: ARG002, N802
        self.engine.abort_request(request.request_id)
        return worker_pb2.AbortRequestReply(was_running=True)


class ScriptedEngine(LLMEngine):
    def __init__(self, role: str, script: Path) -> None:
        self.role, self.script = role, script
        self.aborted: set[str] = set()
        self.offers = 0
        self.outputs = 0
        self.number = 0

    @classmethod
    async def from_args(cls, argv=None):
        raise NotImplementedError

    async def start(self, worker_id):
        instance = new_instance(self.role)
        record = new_record(self.role, instance, "test", "0")
        record.worker_id = worker_id
        self.server, record.grpc_target = await grpc_edge.serve(
            "127.0.0.1",
            0,
            lambda server: worker_pb2_grpc.add_WorkerControlServicer_to_server(
                ScriptedControl(self), server
            ),
        )
        nc = await nats_connection.connect(os.environ["NATS_URL"], instance)
        self.beating = asyncio.create_task(Heartbeat(nc, lambda: record).run())
        return EngineConfig(
            model=os.environ["ROUTER_MODEL_DIR"],
            served_model_name="scripted",
            llm=LlmRegistration(
                context_length=8192, kv_cache_block_size=BLOCK_TOKENS, total_kv_blocks=1000
            ),
        )

    async def generate(self, request, context):
        script = json.loads(self.script.read_text())
        self._note(
            {"request": request, "id": context.id(), "metadata": dict(context.metadata.items())}
        )
        if script.get(f"refuse_{self.role}"):
            raise EngineShutdown("scripted refusal")
        prompt = list(request["token_ids"])
        if (request.get("extra_args") or {}).get("kv_handoff") == "offer":
            await asyncio.sleep(script.get("prefill_s", 0))
            if context.id() in self.aborted:
                return
            self.offers += 1
            yield {
                "token_ids": [next_token(prompt)],
                "index": 0,
                "finish_reason": "length",
                "disaggregated_params": {
                    "kv_transfer_params": {"offer": f"{os.getpid()}-{self.offers}"}
                },
                "completion_usage": self._usage(prompt, 1, script.get("cached", 0)),
            }
            return
        if "outputs" in script:
            async for chunk in self._scripted(request, script):
                yield chunk
            return
        most = request["stop_conditions"]["max_tokens"]
        for made in range(1, most + 1):
            await asyncio.sleep(script.get("delay_s", 0))
            if context.id() in self.aborted:
                return
            prompt.append(next_token(prompt))
            chunk = {"token_ids": [prompt[-1]], "index": 0}
            if made == most:
                chunk["finish_reason"] = "length"
                chunk["completion_usage"] = self._usage(prompt, made, 0)
            yield chunk
            if script.get(f"die_after_{self.role}") == made:
                await asyncio.sleep(0.05)  # let the token leave
                self.script.write_text("{}")
                os.kill(os.getpid(), signal.SIGKILL)

    async def _scripted(self, request, script):
        if script["number"] != self.number:
            self.number, self.outputs = script["number"], 0
        output = script["outputs"][self.outputs]
        self.outputs += 1
        if script.get("is_continued"):
            output = output[request["extra_args"]["grammar_prefix_tokens"] :]
        for made, token in enumerate(output, start=1):
            await asyncio.sleep(script.get("delay_s", 0))
            chunk = {"token_ids": [token], "index": 0}
            if made == len(output):
                chunk["finish_reason"] = "stop"
                chunk["completion_usage"] = self._usage(request["token_ids"], made, 0)
            yield chunk
            if script.get(f"die_after_{self.role}") == made:
                await asyncio.sleep(0.05)  # let the token leave
                self.script.write_text(json.dumps(script | {f"die_after_{self.role}": None}))
                os.kill(os.getpid(), signal.SIGKILL)

    async def abort(self, context):
        if not json.loads(self.script.read_text()).get("deaf"):
            self.abort_request(context.id())

    def abort_request(self, request_id):
        if request_id not in self.aborted:
            self.aborted.add(request_id)
            self._note({"aborted": request_id})

    async def cleanup(self):
        pass

    def _usage(self, prompt, made, cached):
        return {
            "prompt_tokens": len(prompt),
            "completion_tokens": made,
            "total_tokens": len(prompt) + made,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def _note(self, what):
        path = self.script.with_suffix(f".{self.role}.{os.getpid()}.requests")
        with path.open("a") as file:
            file.write(json.dumps(what) + "\n")


async def build(argv=None):
    role, script = sys.argv[1], Path(sys.argv[2])
    modes = {"prefill": DisaggregationMode.PREFILL, "decode": DisaggregationMode.DECODE}
    config = WorkerConfig(
        namespace=os.environ["DYN_NAMESPACE"],
        component={"prefill": "prefill", "decode": "backend"}[role],
        endpoint="generate",
        model_name=os.environ["ROUTER_MODEL_DIR"],
        served_model_name="scripted",
        discovery_backend="file",
        request_plane="tcp",
        event_plane="nats",
        enable_kv_routing=False,
        disaggregation_mode=modes[role],
    )
    return ScriptedEngine(role, script), config


if __name__ == "__main__":
    run(ScriptedEngine, engine_factory=build)
