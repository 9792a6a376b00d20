"""Calls that a real model samples under the mask, over fifty schemas, through the whole platform.

The laptop's model with GLM's tokens is small enough to write almost at random at temperature 1, so
whatever holds an answer together is the grammar, the parser and the guard. Every request is sent
twice with one seed, whole and as a stream; the official SDK puts the stream together.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import openai
import yaml

from benches.report import Figure
from launcher.runenv import ROOT, RunDir, read_env

MODEL = "smollm2-glm"
TOOLS_FILE = Path(__file__).parent / "tools.yaml"
CALLS = 500
MOST_TOKENS = 1024
PARALLEL_EVERY, MOST_TOKENS_PARALLEL = 20, 256
"""A model that writes at random rarely stops after a call when it may make another one."""
CONCURRENCY = 16
"""More would be faster, but then the longest calls take more than the 600 s that a request has."""
RUNNING_STACK = "MILLRACE_STACK_RUN_DIR"
TOOLS_BESIDE = 4
"""Every second request declares so many other tools beside the one that is under test."""
FORMATS = jsonschema.FormatChecker(("email", "ipv4", "uuid"))
"""Not date: Python knows in which years there is a 29 February, a grammar does not."""
FAULTS = "millrace_router_faulty_outputs_total"

Calls = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Request:
    """One request; `seed` counts the requests and makes each one repeatable."""

    seed: int
    tools: tuple[Mapping[str, Any], ...]

    @property
    def is_parallel(self) -> bool:
        """Some requests may hold several calls."""
        return self.seed % PARALLEL_EVERY == PARALLEL_EVERY - 1

    def body(self) -> dict[str, Any]:
        """What both ways of asking share."""
        first = self.tools[0]
        return {
            "model": MODEL,
            "messages": [
                {"role": "system", "content": "You are an agent. Answer with one tool call."},
                {"role": "user", "content": f"{first['description']} Make up the details."},
            ],
            "tools": [{"type": "function", "function": dict(tool)} for tool in self.tools],
            "tool_choice": "required",
            "parallel_tool_calls": self.is_parallel,
            "temperature": 1,
            "max_tokens": MOST_TOKENS_PARALLEL if self.is_parallel else MOST_TOKENS,
            "seed": self.seed,
            "extra_body": {"chat_template_kwargs": {"enable_thinking": False}},
        }


@dataclass(frozen=True)
class Answer:
    """What came back; `error` is set instead where nothing did."""

    calls: Calls = ()
    content: str | None = None
    finish: str = ""
    error: str = ""


@dataclass(frozen=True)
class Asked:
    """One request and its answer, whole and put together from a stream."""

    request: Request
    whole: Answer
    parts: Answer

    def fault(self) -> str:
        """What is wrong with the whole answer; empty when nothing is."""
        return _fault(self.request, self.whole)

    def differs(self) -> bool:
        """True where the stream says something else, or nothing.

        A call that was cut while it streamed live is in the stream's answer only, unfinished.
        """
        if self.whole.finish == self.parts.finish == "length":
            return self.parts.calls[: len(self.whole.calls)] != self.whole.calls
        return bool(self.whole.error) or self.whole != self.parts


def figures(samples: int | None = None) -> list[Figure]:
    """Answers that are right, the same streamed, and whether the guard had to catch any."""
    requests = list(_requests(samples or CALLS))
    started = time.monotonic()
    with _stack() as env:
        faults_before = _faults(env)
        answers = _ask_all(env, requests)
        faults = _faults(env) - faults_before
    wrong = [asked for asked in answers if asked.fault()]
    ended = [asked for asked in answers if asked.whole.finish != "length"]
    right = [asked for asked in ended if not asked.fault()]
    differing = [asked for asked in answers if asked.differs()]
    for asked in wrong:
        print(f"sampled calls: seed {asked.request.seed}: {asked.fault()}: {asked.whole}")
    for asked in differing:
        print(f"sampled calls: seed {asked.request.seed}: streamed {asked.parts}: {asked.whole}")
    return [
        Figure(
            "sampled_answers_right",
            round(100 * len(right) / max(len(ended), 1), 2),
            "%",
            "= 100",
            bool(ended) and not wrong,
            _summary(answers, time.monotonic() - started),
        ),
        Figure(
            "sampled_answers_truncated",
            len(answers) - len(ended),
            f"of {len(answers)}",
            "",
            True,
            "they say finish length and hold whole calls only",
        ),
        Figure(
            "sampled_answers_streamed_equal",
            len(answers) - len(differing),
            f"of {len(answers)}",
            f"= {len(answers)}",
            not differing,
        ),
        Figure("sampled_outputs_faulty", faults, "", "= 0", faults == 0, "caught by the guard"),
    ]


def _summary(answers: list[Asked], seconds: float) -> str:
    calls = [call for asked in answers for call in asked.whole.calls]
    names = {name for name, _ in calls}
    return f"{len(calls)} calls of {len(names)} tools, each asked for twice, in {seconds:.0f} s"


def _requests(count: int) -> Iterator[Request]:
    tools = yaml.safe_load(TOOLS_FILE.read_text())
    for number in range(count):
        first = tools[number % len(tools)]
        rest = [tool for tool in tools if tool is not first]
        beside = random.Random(number).sample(rest, TOOLS_BESIDE) if number % 2 else []
        yield Request(number, (first, *beside))


def _ask_all(env: Mapping[str, str], requests: list[Request]) -> list[Asked]:
    sdk = openai.OpenAI(
        base_url=f"{env['MILLRACE_URL']}/v1",
        api_key=env["MILLRACE_API_KEY"],
        max_retries=0,
        timeout=600,
    )

    def ask(request: Request) -> Asked:
        return Asked(request, _whole(sdk, request), _parts(sdk, request))

    with ThreadPoolExecutor(CONCURRENCY) as pool:
        return list(pool.map(ask, requests))


def _whole(sdk: openai.OpenAI, request: Request) -> Answer:
    try:
        completion: Any = sdk.chat.completions.create(**request.body())
    except openai.APIError as error:
        return Answer(error=str(error))
    return _answer(completion)


def _parts(sdk: openai.OpenAI, request: Request) -> Answer:
    try:
        with sdk.chat.completions.stream(**request.body()) as stream:
            return _answer(stream.get_final_completion())
    except openai.LengthFinishReasonError as error:
        return _answer(error.completion)
    except openai.APIError as error:
        return Answer(error=str(error))


def _answer(completion: Any) -> Answer:
    (choice,) = completion.choices
    calls = choice.message.tool_calls or ()
    return Answer(
        calls=tuple((call.function.name, call.function.arguments) for call in calls),
        content=choice.message.content or None,
        finish=choice.finish_reason,
    )


def _fault(request: Request, answer: Answer) -> str:
    if answer.error:
        return answer.error
    declared = {tool["name"]: tool["parameters"] for tool in request.tools}
    for name, arguments in answer.calls:
        if name not in declared:
            return f"{name} is not declared"
        try:
            validator = jsonschema.Draft202012Validator(declared[name], format_checker=FORMATS)
            validator.validate(json.loads(arguments))
        except jsonschema.ValidationError as error:
            return f"{name} is invalid: {error.message}"
        except ValueError as error:
            return f"the arguments of {name} are not JSON: {error}"
    if answer.finish == "length":
        return ""
    if answer.finish != "tool_calls" or not answer.calls or answer.content:
        return f"finish {answer.finish}, {len(answer.calls)} calls, content {answer.content!r}"
    return ""


def _faults(env: Mapping[str, str]) -> float:
    """How many outputs the router has caught so far (a retry may hide them from the client)."""
    lines = httpx.get(env["ROUTER_METRICS"]).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(FAULTS))


@contextmanager
def _stack() -> Iterator[dict[str, str]]:
    """A stack with GLM's tokens: the one that runs in MILLRACE_STACK_RUN_DIR, else one of its own.

    The folder of its own is removed afterwards.
    """
    if running := os.environ.get(RUNNING_STACK):
        yield _addresses(Path(running))
        return
    run_dir = Path(tempfile.mkdtemp(prefix="millrace-sampled-"))
    where = ["--run-dir", str(run_dir)]
    up = [str(ROOT / "tools" / "up"), "--detach", "--model", MODEL, *where]
    try:
        subprocess.run(up, check=True, stdout=sys.stderr)
        yield _addresses(run_dir)
    finally:
        subprocess.run([str(ROOT / "tools" / "down"), *where], check=False, stdout=sys.stderr)
        shutil.rmtree(run_dir, ignore_errors=True)


def _addresses(run_dir: Path) -> dict[str, str]:
    run = RunDir.at(run_dir)
    metrics = f"http://127.0.0.1:{run.known_ports()['router.metrics']}/metrics"
    return {**read_env(run.env), "ROUTER_METRICS": metrics}
