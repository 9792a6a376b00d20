"""The client of `engine_process`: one real engine for all tests that ask for one."""

import json
import os
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from itertools import count

from tokenizers import Tokenizer

START_S = 240
ANSWER_S = 60


@dataclass
class Answer:
    """What came of one call."""

    tokens: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    error: str | None = None
    message: str = ""


class Call:
    """A call that runs; `answer` waits for its end."""

    def __init__(self, lines):
        self._lines = lines
        self._answer = Answer()

    def wait_for_first_token(self):
        """Returns when the engine is in the middle of the answer."""
        while not self._answer.tokens:
            assert not self._read(), f"no token came: {self._answer}"

    def answer(self):
        """The whole answer."""
        while not self._read():
            pass
        return self._answer

    def _read(self):
        """Takes one line in; True at the end."""
        line = self._lines.get(timeout=ANSWER_S)
        chunk = line.get("chunk", {})
        self._answer.tokens += chunk.get("token_ids", [])
        self._answer.finish_reason = chunk.get("finish_reason", self._answer.finish_reason)
        self._answer.error = line.get("error", self._answer.error)
        self._answer.message = line.get("message", self._answer.message)
        return line.get("is_over", False)


class RealEngine:
    """A running engine and its tokenizer."""

    def __init__(self, model_dir, log):
        self.tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        self._numbers = count()
        self._lines = {}
        self._log = log
        with log.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "tests.libs.engine.engine_process"],
                env={
                    **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
                    "ENGINE_MODEL_DIR": str(model_dir),
                    "ENGINE_MODEL_NAME": "test",
                    "ENGINE_MAX_MODEL_LEN": "2048",
                    "VLLM_CPU_KVCACHE_SPACE": "1",
                    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                    "VLLM_NO_USAGE_STATS": "1",
                    "VLLM_LOGGING_LEVEL": "WARNING",
                    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
                    "HF_HUB_OFFLINE": "1",
                    "OMP_NUM_THREADS": "1",
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
            )
        self._ready = queue.Queue()
        threading.Thread(target=self._distribute, daemon=True).start()

    def wait_ready(self):
        """Returns the seconds that the engine took to start."""
        try:
            return self._ready.get(timeout=START_S)["ready"]
        except (queue.Empty, TypeError) as error:
            raise AssertionError(f"the engine did not start:\n{self.log()[-4000:]}") from error

    def log(self):
        """What vLLM wrote so far."""
        return self._log.read_text(errors="replace")

    def ids(self, *parts):
        """Token ids of these parts: each control token by its name, other text as plain tokens."""
        return [token for part in parts for token in self._ids_of(part)]

    def call(
        self, prompt, *, grammar=None, guided=None, forced=None, prefix=None, most=64, **options
    ):
        """Starts an answer; greedy unless `options` (sampling options) say otherwise."""
        number = f"call-{next(self._numbers)}"
        sampling = {"temperature": 0.0, **options}
        stop = {"max_tokens": most, "ignore_eos": sampling.pop("ignore_eos", False)}
        if guided or grammar:
            sampling["guided_decoding"] = guided or {"grammar": grammar}
        request = {
            "token_ids": prompt,
            "sampling_options": sampling,
            "stop_conditions": stop,
            "extra_args": {} if prefix is None else {"grammar_prefix_tokens": prefix},
        }
        lines = self._lines[number] = queue.Queue()
        self._process.stdin.write(
            json.dumps({"id": number, "request": request, "forced": forced}) + "\n"
        )
        self._process.stdin.flush()
        return Call(lines)

    def answer(self, prompt, **arguments):
        """A whole answer."""
        return self.call(prompt, **arguments).answer()

    def close(self):
        """Ends the engine."""
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._process.stdout.close()

    def _ids_of(self, part):
        control = self.tokenizer.token_to_id(part)
        if control is not None:
            return [control]
        return self.tokenizer.encode(part, add_special_tokens=False).ids

    def _distribute(self):
        for text in self._process.stdout:
            if not text.startswith("{"):
                continue  # a print of some library
            line = json.loads(text)
            (self._ready if "ready" in line else self._lines[line["id"]]).put(line)
        self._ready.put(None)
