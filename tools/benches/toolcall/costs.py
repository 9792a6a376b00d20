"""What tool calls cost: grammars (built and compiled, cold), the parser a chunk, masks a token.

Grammars are compiled as a running engine does: with vLLM's compiler settings, by one compiler that
has compiled others before, each list of tools once. The lists of ten are BFCL's functions, drawn
with a fixed seed; the agent's ten are tool-eval-bench's; the
bounded ones are ours, whose every text and list has a greatest length: few clients send such
schemas, and they compile slower. No two lists of fifty share a tool or a key.
"""

import collections
import json
import random
import statistics
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from tool_eval_bench.domain.tools import UNIVERSAL_TOOLS

from benches.direct_engine import Ask, direct_engine
from benches.report import Figure, spread
from benches.toolcall import bfcl, fetch
from benches.toolcall.masks import Masks
from launcher import model
from toolcall.formats.render import render_calls
from toolcall.formats.table import GLM_45
from toolcall.grammar.build import build
from toolcall.guard import Guard
from toolcall.marks import Marks, control_tokens
from toolcall.parser.parser import Parser
from toolcall.plan import OutputPlan
from toolcall.requests import plan_output

MODEL = "smollm2-glm"
TOOLS_FILE = Path(__file__).parent / "tools.yaml"
REPETITIONS = 20
TEN_TOOLS_TARGET_MS = 10.0
FIFTY_TOOLS_TARGET_MS = 100.0
CHUNK_TARGET_US = 15.0
DECODE_RATIO_TARGET = 1.05
ANSWER_TOKENS = 64
PAIRS = 20


def figures(samples: int | None = None) -> list[Figure]:
    """Medians over repetitions; the ratio is taken within one run, the two sides in turn."""
    model_dir = model.ensure(MODEL)
    repetitions = samples or REPETITIONS
    bounded = yaml.safe_load(TOOLS_FILE.read_text())[:10]
    compiled = Compiled(model_dir)
    return [
        compiled.figure("10_tools", _drawn_tools(repetitions), TEN_TOOLS_TARGET_MS),
        compiled.figure("10_tools_of_an_agent", _renamed_tools(repetitions), None),
        compiled.figure(
            "50_tools_x_10",
            (_wide_tools(f"p{number}") for number in range(repetitions)),
            FIFTY_TOOLS_TARGET_MS,
        ),
        compiled.figure("10_bounded_tools", [bounded], None),
        _parser_figure(model_dir, _plan(bounded), repetitions),
        *_decode_figures(model_dir, _plan(bounded), samples or PAIRS),
    ]


class Compiled:
    """Builds and compiles the grammars of tools that it has not seen before."""

    def __init__(self, model_dir: Path) -> None:
        self._masks, self._marks = Masks(model_dir), _marks(model_dir)

    def figure(
        self, name: str, lists: Iterable[list[dict[str, Any]]], target_ms: float | None
    ) -> Figure:
        """The time that a request with a new list waits for its grammar."""
        build_ms, compile_ms = [], []
        for tools in lists:
            plan = _plan(tools)
            started = time.perf_counter()
            ebnf = build(plan, GLM_45, self._marks, "fresh", effort="full").ebnf
            build_ms.append(1000 * (time.perf_counter() - started))
            compile_ms.append(1000 * self._masks.compile_s(ebnf))
        middle = statistics.median(a + b for a, b in zip(build_ms, compile_ms, strict=True))
        return Figure(
            f"grammar_ms_{name}",
            round(middle, 2),
            "ms",
            "" if target_ms is None else f"< {target_ms:g}",
            target_ms is None or middle < target_ms,
            f"built {spread(build_ms, 2)}, compiled {spread(compile_ms, 2)}",
        )


def _parser_figure(model_dir: Path, plan: OutputPlan, repetitions: int) -> Figure:
    """CPU of parser and guard for a typical answer, a token a chunk."""
    from router.render import Renderer
    from router.text import TextStream

    renderer = Renderer(model_dir, 8192)
    tokens = renderer.tokenizer.encode(_typical_answer(), add_special_tokens=False).ids
    stream = TextStream(renderer.tokenizer, renderer.marks, renderer.visible_marks)
    chunks = [stream.push([token]) for token in tokens]
    live = build(plan, GLM_45, renderer.marks, "fresh", effort="full").exact_tools
    guard = Guard(plan)
    us = []
    for _ in range(repetitions):
        started = time.process_time()
        parser = Parser(plan, GLM_45, renderer.marks, "fresh", guard, live)
        for chunk in chunks:
            parser.push(chunk)
        parser.finish("stop")
        us.append(1e6 * (time.process_time() - started) / len(chunks))
    middle = statistics.median(us)
    return Figure(
        "parser_cpu_us_per_chunk",
        round(middle, 2),
        "us",
        f"< {CHUNK_TARGET_US:g}",
        middle < CHUNK_TARGET_US,
        f"{spread(us, 2)}; {len(chunks)} chunks with guard",
    )


def _decode_figures(model_dir: Path, plan: OutputPlan, pairs: int) -> list[Figure]:
    """The same prompt and the same number of tokens, with the mask and without."""
    grammar = build(plan, GLM_45, _marks(model_dir), "after_reasoning", effort="full").ebnf
    ratios, plain_ms, masked_ms = [], [], []

    def seconds_a_token(ask: Ask, prompt: list[int], grammar: str | None) -> float:
        got = ask(prompt, ANSWER_TOKENS, grammar, is_exact=True)
        if len(got.token_ids) != ANSWER_TOKENS:
            raise RuntimeError(f"expected {ANSWER_TOKENS} tokens, got {len(got.token_ids)}")
        return got.decode_s / (ANSWER_TOKENS - 1)

    with direct_engine(model_dir, MODEL) as ask:
        for number in range(pairs + 1):
            prompt = [1000 + (37 * number + 11 * at) % 20_000 for at in range(32)]
            first, second = (None, grammar) if number % 2 else (grammar, None)
            times = {kind is None: seconds_a_token(ask, prompt, kind) for kind in (first, second)}
            if number:  # the first pair warms up
                plain_ms.append(1000 * times[True])
                masked_ms.append(1000 * times[False])
                ratios.append(times[False] / times[True])
    ratio = statistics.median(ratios)
    return [
        Figure(
            "decode_ms_per_token_masked",
            round(statistics.median(masked_ms), 2),
            "ms",
            "",
            True,
            f"masked {spread(masked_ms, 2)}, without a mask {spread(plain_ms, 2)}",
        ),
        Figure(
            "decode_ratio_masked",
            round(ratio, 3),
            "",
            f"<= {DECODE_RATIO_TARGET:g}",
            ratio <= DECODE_RATIO_TARGET,
            f"{spread(ratios)}; {ANSWER_TOKENS} tokens each, in turn",
        ),
    ]


def _marks(model_dir: Path) -> Marks:
    content = json.loads((model_dir / "tokenizer.json").read_text())
    return Marks(control_tokens(content["added_tokens"]))


def _plan(tools: list[dict[str, Any]]) -> OutputPlan:
    return plan_output(
        tools=[{"type": "function", "function": tool} for tool in tools],
        tool_choice="auto",
        parallel_tool_calls=True,
        response_format=None,
    )


def _drawn_tools(count: int) -> Iterator[list[dict[str, Any]]]:
    """So many lists of ten functions from BFCL's questions; no name twice in a list."""
    excluded: collections.Counter[str] = collections.Counter()
    with fetch.bfcl() as data:
        cases = list(bfcl.cases(data, excluded, None))
    known = {tool["function"]["name"]: tool["function"] for case in cases for tool in case.tools}
    names, draw = sorted(known), random.Random(1)
    for _ in range(count):
        yield [known[name] for name in draw.sample(names, 10)]


def _renamed_tools(count: int) -> Iterator[list[dict[str, Any]]]:
    """tool-eval-bench's first ten again and again, each time under other names."""
    for number in range(count):
        yield [
            {**tool["function"], "name": f"{tool['function']['name']}_{number}"}
            for tool in UNIVERSAL_TOOLS[:10]
        ]


def _wide_tools(prefix: str) -> list[dict[str, Any]]:
    """Fifty tools of ten parameters, all different, half of them required."""
    kinds: list[dict[str, Any]] = [
        {"type": "string"},
        {"type": "integer", "minimum": 0, "maximum": 1000},
        {"type": "boolean"},
        {"type": "number"},
        {"type": "string", "enum": ["low", "medium", "high"]},
        {"type": "array", "items": {"type": "string"}},
        {"type": ["string", "null"]},
        {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}},
        {"type": "string", "maxLength": 200},
        {"type": "array", "items": {"type": "number"}, "maxItems": 8},
    ]
    return [
        {
            "name": f"tool_{number}",
            "description": f"Tool number {number}.",
            "parameters": {
                "type": "object",
                "properties": {f"{prefix}_{number}_{at}": kind for at, kind in enumerate(kinds)},
                "required": [f"{prefix}_{number}_{at}" for at in range(0, len(kinds), 2)],
            },
        }
        for number in range(50)
    ]


def _typical_answer() -> str:
    """Reasoning, a sentence and two calls, some 200 tokens."""
    calls = [
        (
            "edit_file",
            {
                "path": "src/server.py",
                "old_text": "def serve(port: int) -> None:\n    listen(port)\n",
                "new_text": "def serve(port: int, host: str) -> None:\n    listen(host, port)\n",
                "replace_all": False,
            },
        ),
        ("bash", {"command": "python -m pytest tests/test_server.py -q", "timeout_ms": 60000}),
    ]
    think = (
        "The server listens on every address because no host is passed on. The function needs a"
        " second parameter with a default that keeps callers working, and the test should run"
        " afterwards to see that nothing else relies on the old signature."
    )
    said = "I will pass the host on and run the tests."
    return f"\n<think>{think}</think>\n{said}\n{render_calls(GLM_45, calls)}"
