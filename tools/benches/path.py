"""`./tools/bench path`: what one request through the whole platform costs.

Starts a stack of its own (the run folder is removed afterwards) and measures

- the time from `./tools/up` of a stopped, installed stack to its first answer;
- the time to first token of short prompts, against vLLM alone in the same run: the two are asked in
  turn, each prompt is new to every cache, and the ratio is taken of the medians;
- CPU and memory of the idle stack, over all of its processes;
- cached tokens of a session's second turn, and that greedy answers over prefill and decode are
those
  of vLLM alone.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import psutil

from benches.direct_engine import direct_engine
from benches.report import Figure, finish, spread
from launcher import marks, model
from launcher.runenv import ROOT, RunDir, read_env

MODEL = "smollm2"
QUESTION = "What is the capital of France?"
ANSWER_TOKENS = 24
START_TARGET_S = 90.0
TTFT_RATIO_TARGET = 2.5
IDLE_CPU_TARGET_PERCENT = 15.0
MEMORY_TARGET_GB = 9.0
IDLE_WATCH_S = 20.0
SETTLE_S = 5.0
"""After the last request: one-second spin loops of vLLM and last KV writes are no idle load."""


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="./tools/bench path", description=__doc__)
    parser.add_argument("--pairs", type=int, default=20, help="timed requests of each kind")
    args = parser.parse_args()
    run_dir = Path(tempfile.mkdtemp(prefix="millrace-bench-"))
    try:
        with stack(run_dir):
            pass  # the first start makes databases and keys; what is timed is a later one
        started = time.monotonic()
        with stack(run_dir) as env, client(env) as sdk:
            text = ask(sdk, QUESTION).choices[0].message.content or ""
            first_answer_s = time.monotonic() - started
            figures = [
                Figure(
                    "start_to_first_answer",
                    round(first_answer_s, 1),
                    "s",
                    f"<= {START_TARGET_S:.0f}",
                    first_answer_s <= START_TARGET_S and "Paris" in text,
                    repr(text),
                ),
                *idle_figures(run_dir),
                second_turn_figure(sdk),
                *engine_figures(sdk, args.pairs),
            ]
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)
    return finish("path", figures)


@contextmanager
def stack(run_dir: Path) -> Iterator[dict[str, str]]:
    """The stack of this run folder while the block runs."""
    command = [str(ROOT / "tools" / "up"), "--detach", "--run-dir", str(run_dir)]
    subprocess.run(command, check=True, stdout=sys.stderr)
    try:
        yield read_env(run_dir / "env")
    finally:
        down = [str(ROOT / "tools" / "down"), "--run-dir", str(run_dir)]
        subprocess.run(down, check=True, stdout=sys.stderr)


def client(env: dict[str, str]) -> openai.OpenAI:
    """The official SDK, without retries of its own."""
    return openai.OpenAI(
        base_url=f"{env['MILLRACE_URL']}/v1", api_key=env["MILLRACE_API_KEY"], max_retries=0
    )


def ask(sdk: openai.OpenAI, text: str, tokens: int = ANSWER_TOKENS) -> Any:
    """One greedy answer."""
    return sdk.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": text}],
        temperature=0,
        max_tokens=tokens,
    )


def ttft_s(sdk: openai.OpenAI, text: str) -> float:
    """Seconds until the first text of a streamed answer."""
    started = time.perf_counter()
    stream = sdk.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": text}],
        temperature=0,
        max_tokens=4,
        stream=True,
    )
    first = None
    for chunk in stream:
        if first is None and chunk.choices and chunk.choices[0].delta.content:
            first = time.perf_counter() - started
    if first is None:
        raise RuntimeError(f"no text came back for {text!r}")
    return first


def idle_figures(run_dir: Path) -> list[Figure]:
    """CPU and proportional set size over every process of the stack."""
    time.sleep(SETTLE_S)
    processes = [psutil.Process(pid) for pid in marks.marked_pids(RunDir.at(run_dir).root)]
    before, started = sum(cpu_s(p) for p in processes), time.monotonic()
    time.sleep(IDLE_WATCH_S)
    percent = 100 * (sum(cpu_s(p) for p in processes) - before) / (time.monotonic() - started)
    memory_gb = sum(p.memory_full_info().pss for p in processes) / 1e9
    return [
        Figure(
            "idle_cpu",
            round(percent, 1),
            "% of a core",
            f"< {IDLE_CPU_TARGET_PERCENT:.0f}",
            percent < IDLE_CPU_TARGET_PERCENT,
            f"{len(processes)} processes over {IDLE_WATCH_S:.0f} s",
        ),
        Figure(
            "idle_memory_pss",
            round(memory_gb, 2),
            "GB",
            f"< {MEMORY_TARGET_GB:.0f}",
            memory_gb < MEMORY_TARGET_GB,
        ),
    ]


def cpu_s(process: psutil.Process) -> float:
    """CPU seconds that a process has used so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def second_turn_figure(sdk: openai.OpenAI) -> Figure:
    """Prompt tokens that a session's second turn took from a cache."""
    turns: list[Any] = [
        {"role": "user", "content": f"Session {time.time_ns()}. Tell me about rivers."}
    ]
    asked: dict[str, Any] = {
        "model": MODEL,
        "messages": turns,
        "temperature": 0,
        "user": "bench-session",
    }
    first: Any = sdk.chat.completions.create(**asked, max_tokens=32)
    turns += [
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "Go on."},
    ]
    second: Any = sdk.chat.completions.create(**asked, max_tokens=8)
    cached = second.usage.prompt_tokens_details.cached_tokens
    return Figure(
        "second_turn_cached_tokens",
        cached,
        "tokens",
        "> 0",
        cached > 0,
        f"of {second.usage.prompt_tokens} prompt tokens",
    )


def engine_figures(sdk: openai.OpenAI, pairs: int) -> list[Figure]:
    """TTFT against vLLM alone, and whether both give the same greedy answers."""
    renderer = prompt_renderer()
    path_s, direct_s, equal = [], [], 0
    texts = [f"Question {time.time_ns() + n}: which animal is number {n}?" for n in range(pairs)]
    with direct_engine(model.ensure(MODEL), MODEL) as direct:
        ttft_s(sdk, "Warm up, please."), direct(renderer("Warm up, please."), 4)
        for n, text in enumerate(texts):
            # In turn, and the order swapped each time: neither profits from the other's warmth.
            if n % 2:
                path_s.append(ttft_s(sdk, text))
            direct_s.append(direct(renderer(text), 4).ttft_s)
            if not n % 2:
                path_s.append(ttft_s(sdk, text))
        answers = [QUESTION, *texts[:5]]
        for text in answers:
            tokens = direct(renderer(text), ANSWER_TOKENS).token_ids
            equal += ask(sdk, text).choices[0].message.content == renderer.decode(tokens)
    ratio = statistics.median(path_s) / statistics.median(direct_s)
    return [
        Figure("ttft_path", round(statistics.median(path_s), 4), "s", "", True, spread(path_s)),
        Figure(
            "ttft_engine_alone",
            round(statistics.median(direct_s), 4),
            "s",
            "",
            True,
            spread(direct_s),
        ),
        Figure(
            "ttft_ratio",
            round(ratio, 2),
            "",
            f"<= {TTFT_RATIO_TARGET}",
            ratio <= TTFT_RATIO_TARGET,
            "path / engine alone, medians of one run",
        ),
        Figure(
            "greedy_answers_equal_to_engine_alone",
            equal,
            f"of {len(answers)}",
            f"= {len(answers)}",
            equal == len(answers),
        ),
    ]


class PromptRenderer:
    """The router's own rendering, so that both sides get the same tokens."""

    def __init__(self, model_dir: Path) -> None:
        from router.render import Renderer

        self._renderer = Renderer(model_dir, 8192)

    def __call__(self, text: str) -> list[int]:
        """Prompt tokens of one user message."""
        messages = [{"role": "user", "content": text}]
        return list(self._renderer.tokenize(self._renderer.render_chat(messages), "messages"))

    def decode(self, token_ids: list[int]) -> str:
        """Text of an answer."""
        text: str = self._renderer.tokenizer.decode(token_ids, skip_special_tokens=True)
        return text


def prompt_renderer() -> PromptRenderer:
    """A renderer of the model that the stack serves."""
    return PromptRenderer(model.ensure(MODEL))


if __name__ == "__main__":
    sys.exit(main())
