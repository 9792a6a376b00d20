"""LBHNC against BLHNC: two pairs of real engines, read from in turn.

Transfer times are NIXL's own, from posting a read to its last byte. Request times are what comes
before, in the engine's thread: making NIXL's request from the block lists. The lists of all blocks
that both sides prepare once per peer are in neither. Everything is on one host, over its memory or
over TCP on its loopback.
"""

import contextlib
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches.report import Figure, spread

LAYOUTS = ("LBHNC", "BLHNC")
TRANSPORTS: dict[str, dict[str, str]] = {"host": {}, "tcp": {"UCX_TLS": "tcp,self"}}
"""What UCX is told: nothing, and then it copies between memories of one host, or to use TCP as it
would between two."""
VOCABULARY = 49_000
TOOLS = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Reads:
    """What one layout's reads moved and took; one entry per read.

    The times leave the first read out (it connects).
    """

    descriptors: tuple[int, ...]
    total_bytes: tuple[int, ...]
    seconds: tuple[float, ...]
    request_seconds: tuple[float, ...]
    tokens: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Load:
    """What is moved: a prompt of `context` random tokens, `reads` times in each layout."""

    model_dir: Path
    context: int
    reads: int
    kv_dtype: str
    transport: str


def measure(load: Load) -> list[Figure]:
    """Starts both pairs, reads the same prompt in turn, and compares."""
    with contextlib.ExitStack() as stack:
        pairs = {
            layout: [
                stack.enter_context(started_engine(role, layout, load))
                for role in ("producer", "consumer")
            ]
            for layout in LAYOUTS
        }
        prompt = random_prompt(load.context)
        alone = ask(pairs["LBHNC"][1], prompt, None)["tokens"]
        found: dict[str, list[dict[str, Any]]] = {layout: [] for layout in LAYOUTS}
        for number in range(load.reads + 1):
            # Whoever goes second finds warmer caches: take turns.
            for layout in LAYOUTS if number % 2 else reversed(LAYOUTS):
                producer, consumer = pairs[layout]
                offer = ask(producer, prompt, None)["offer"]
                found[layout].append(ask(consumer, prompt, offer))
    results = {layout: reads_of(answers) for layout, answers in found.items()}
    return figures_of(results, alone, load.kv_dtype == "auto")


def figures_of(results: dict[str, Reads], alone: Sequence[int], is_exact: bool) -> list[Figure]:
    """`is_exact`: rows keep the model's dtype.

    Quantised rows answer otherwise than a prefill at the reader, in vLLM's own layout too; there
    the two layouts are held only to each other.
    """
    layers, packed = results["LBHNC"], results["BLHNC"]
    fewer = min(layers.descriptors) / max(packed.descriptors)
    times = [statistics.median(reads.seconds) * 1e3 for reads in (layers, packed)]
    requests = [statistics.median(reads.request_seconds) * 1e3 for reads in (layers, packed)]
    each_us = (times[0] - times[1]) * 1e3 / (min(layers.descriptors) - max(packed.descriptors))
    both = sum(times[1:] + requests[1:]) / sum(times[:1] + requests[:1])
    right = sum(tokens == tuple(alone) for reads in (layers, packed) for tokens in reads.tokens)
    pairs = zip(layers.tokens, packed.tokens, strict=True)
    alike = sum(tokens == others for tokens, others in pairs)
    total = len(layers.tokens) + len(packed.tokens)
    return [
        _descriptors("LBHNC", layers),
        _descriptors("BLHNC", packed),
        Figure("fewer descriptors", fewer, "x", ">= 10", fewer >= 10, "least by most"),
        Figure("bytes BLHNC / LBHNC", packed.total_bytes[0] / layers.total_bytes[0], "x",
               "= 1 in every read", len({*packed.total_bytes, *layers.total_bytes}) == 1),
        Figure("transfer LBHNC", times[0], "ms", "any", True, spread(_ms(layers.seconds), 1)),
        Figure("transfer BLHNC", times[1], "ms", "any", True, spread(_ms(packed.seconds), 1)),
        Figure("transfer BLHNC / LBHNC", times[1] / times[0], "x", "<= 0.6",
               times[1] <= 0.6 * times[0], "medians"),
        Figure("a descriptor more costs", each_us, "us", "any", True, "difference by difference"),
        Figure("request LBHNC", requests[0], "ms", "any", True,
               spread(_ms(layers.request_seconds), 1)),
        Figure("request BLHNC", requests[1], "ms", "any", True,
               spread(_ms(packed.request_seconds), 1)),
        Figure("request and transfer, BLHNC / LBHNC", both, "x", "any", True, "medians"),
        Figure("answers alike in both layouts", alike, f"of {len(layers.tokens)}", "all",
               alike == len(layers.tokens)),
        Figure("answers equal to local prefill", right, f"of {total}",
               "all" if is_exact else "any", right == total or not is_exact),
    ]  # fmt: skip


def _descriptors(layout: str, reads: Reads) -> Figure:
    """The most that a read took, and whether every read took as many."""
    least, most, count = min(reads.descriptors), max(reads.descriptors), len(reads.descriptors)
    note = f"{reads.total_bytes[0] / 1e6:.1f} MB; {least} to {most} in {count} reads"
    return Figure(f"descriptors {layout}", most, "", "every read alike", least == most, note)


def _ms(seconds: Sequence[float]) -> list[float]:
    return [value * 1e3 for value in seconds]


def reads_of(answers: list[dict[str, Any]]) -> Reads:
    """What the consumer's answers say of its reads, in order; the first read connected."""
    transfers = [answer["transfers"] for answer in answers]
    for parts in transfers:
        if len(parts) != 1:
            raise RuntimeError(f"expected one NIXL read per request, got {parts}")
    return Reads(
        tuple(parts[0]["descriptors"] for parts in transfers),
        tuple(parts[0]["bytes"] for parts in transfers),
        tuple(parts[0]["seconds"] for parts in transfers[1:]),
        tuple(parts[0]["request_seconds"] for parts in transfers[1:]),
        tuple(tuple(answer["tokens"]) for answer in answers),
    )


def random_prompt(context: int) -> list[int]:
    """Token ids that no tokenizer would write; the same at every call."""
    pick = random.Random(0)
    return [pick.randrange(100, VOCABULARY) for _ in range(context)]


@contextlib.contextmanager
def started_engine(role: str, layout: str, load: Load) -> Iterator["subprocess.Popen[str]"]:
    """A started engine; its log is shown when it does not start."""
    with socket.socket() as free, tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "benches.kv_layout.engine", role,
             str(load.model_dir), str(load.context), load.kv_dtype],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            env={
                **os.environ,
                **TRANSPORTS[load.transport],
                "PYTHONPATH": f"{TOOLS}:{os.environ.get('PYTHONPATH', '')}",
                "VLLM_KV_CACHE_LAYOUT": layout,
                "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
                "VLLM_CPU_KVCACHE_SPACE": "1",
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
                "VLLM_NIXL_SIDE_CHANNEL_PORT": str(port),
                "VLLM_NO_USAGE_STATS": "1",
                "VLLM_LOGGING_STREAM": "ext://sys.stderr",
                "HF_HUB_OFFLINE": "1",
                "OMP_NUM_THREADS": "1",
            },
        )  # fmt: skip
        try:
            line = _line(process)
            if not line.get("is_ready"):
                raise RuntimeError(f"engine {role} {layout}: {Path(log.name).read_text()[-3000:]}")
            yield process
        finally:
            process.kill()
            process.wait()


def ask(
    process: "subprocess.Popen[str]", prompt: list[int], offer: dict[str, Any] | None
) -> dict[str, Any]:
    """One request; a producer answers with an offer, a consumer with tokens."""
    assert process.stdin is not None
    process.stdin.write(json.dumps({"prompt": prompt, "offer": offer}) + "\n")
    process.stdin.flush()
    answer = _line(process)
    if not answer:
        raise RuntimeError("an engine ended while it was asked")
    return answer


def _line(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """The next JSON line; what libraries print in between is left out. Empty at the end."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            answer: dict[str, Any] = json.loads(line)
            return answer
    return {}
