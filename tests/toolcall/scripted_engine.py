"""A worker whose engine replays cases: real Dynamo on both sides, no model behind it.

    python -m tests.toolcall.scripted_engine ROLE FOLDER

The prompt holds `[[case:ID split:SPLIT run:NONCE]]` (tools/toolcheck_suite/scripted.py); the engine
writes that case's output in that split. Asked again for the same run, as after a fault, it writes
the case's second output. Tokens of the answer that the prompt already ends with (a retry, a
migration) are not written again: they must be the output's own first tokens, or the engine writes
only MISMATCH, so that a slip shows. `die-N` in place of a split kills the first process that runs
it after N tokens. Every request is appended to FOLDER/run.NONCE as a JSON line.
"""

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path

from dynamo.common.backend import EngineConfig, LLMEngine, LlmRegistration, WorkerConfig
from dynamo.common.backend.run import run
from dynamo.common.constants import DisaggregationMode

from tests.toolcall import vocabulary
from tests.toolcall.splits import cut_at, named
from toolcheck_suite import cases
from toolcheck_suite.notation import parse

MARKER = re.compile(r"\[\[case:(\S+) split:(\S+) run:(\S+)\]\]")
EOS = 2
MISMATCH = "The prompt does not go on from this output."
BLOCK_TOKENS = 32


class ScriptedEngine(LLMEngine):
    def __init__(self, role: str, folder: Path) -> None:
        self.role, self.folder = role, folder
        self.cases = {case.id: case for case in cases.load()}
        path = Path(os.environ["ROUTER_MODEL_DIR"]) / "tokenizer.json"
        self.words = vocabulary.read(path, has_family_tokens=False)

    @classmethod
    async def from_args(cls, argv=None):
        raise NotImplementedError

    async def start(self, worker_id):  # noqa: ARG002
        return EngineConfig(
            model=os.environ["ROUTER_MODEL_DIR"],
            served_model_name=os.environ["ROUTER_MODEL_NAME"],
            llm=LlmRegistration(
                context_length=8192, kv_cache_block_size=BLOCK_TOKENS, total_kv_blocks=1000
            ),
        )

    async def generate(self, request, context):  # noqa: ARG002
        prompt = list(request["token_ids"])
        if (request.get("extra_args") or {}).get("kv_handoff") == "offer":
            yield self._offer(prompt)
            return
        text = self.words.full.decode(prompt, skip_special_tokens=False)
        case_id, split, nonce = MARKER.findall(text)[-1]
        log = RunLog(self.folder, nonce)
        attempt = log.begin({"case": case_id, "prompt": text, "request": request})
        ids, finish = self._rest(request, case_id, attempt)
        made = 0
        for token_ids, reason in _chunks(ids, finish, "tokens" if "die" in split else split):
            chunk = {"token_ids": list(token_ids), "index": 0}
            made += len(token_ids)
            if reason is not None:
                chunk["finish_reason"] = reason
                chunk["completion_usage"] = _usage(len(prompt), made)
            yield chunk
            if split == f"die-{made}" and not log.deaths:
                await asyncio.sleep(0.05)  # let the token leave
                log.die()
                os.kill(os.getpid(), signal.SIGKILL)

    async def abort(self, context):
        pass

    async def cleanup(self):
        pass

    def _rest(self, request, case_id, attempt):
        """What is left to write of the output, and why it ends."""
        case = self.cases[case_id]
        output = case.output if attempt == 0 or case.then is None else case.then
        ids = self.words.encode(output)
        if case.ends == "stop":
            ids.append(EOS)
        done = (request.get("extra_args") or {}).get("grammar_prefix_tokens") or 0
        if done and request["token_ids"][-done:] != ids[:done]:
            return [*self.words.encode(parse(MISMATCH)), EOS], "stop"
        return ids[done:], case.ends

    def _offer(self, prompt):
        return {
            "token_ids": [EOS],
            "index": 0,
            "finish_reason": "length",
            "disaggregated_params": {"kv_transfer_params": {"offer": f"{os.getpid()}"}},
            "completion_usage": _usage(len(prompt), 1),
        }


class RunLog:
    """What the workers of a cluster did for one run; a file, because they are several processes."""

    def __init__(self, folder, nonce):
        self._path = folder / f"run.{nonce}"
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        self._begun = sum(line != "died" for line in lines)
        self.deaths = len(lines) - self._begun

    def begin(self, what):
        """Writes a request down; returns how often this run ended in an output before."""
        self._add(json.dumps(what))
        return self._begun - self.deaths

    def die(self):
        """Notes that this process ends in the middle of its output."""
        self._add("died")

    def _add(self, line):
        with self._path.open("a") as file:
            file.write(line + "\n")


def _chunks(ids, finish, split):
    """Token ids of each chunk with the finish reason of the last."""
    pieces = cut_at(ids, named(len(ids), split))
    for piece in pieces[:-1]:
        yield piece, None
    if split == "late":
        yield pieces[-1], None
        yield [], None
        yield [], finish
    else:
        yield pieces[-1], finish


def _usage(prompt_tokens, made):
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": made,
        "total_tokens": prompt_tokens + made,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


async def build(argv=None):
    role, folder = sys.argv[1], Path(sys.argv[2])
    modes = {"prefill": DisaggregationMode.PREFILL, "decode": DisaggregationMode.DECODE}
    config = WorkerConfig(
        namespace=os.environ["DYN_NAMESPACE"],
        component={"prefill": "prefill", "decode": "backend"}[role],
        endpoint="generate",
        model_name=os.environ["ROUTER_MODEL_DIR"],
        served_model_name=os.environ["ROUTER_MODEL_NAME"],
        discovery_backend="file",
        request_plane="tcp",
        event_plane="nats",
        enable_kv_routing=False,
        disaggregation_mode=modes[role],
    )
    return ScriptedEngine(role, folder), config


if __name__ == "__main__":
    run(ScriptedEngine, engine_factory=build)
