"""A real router with a replaying worker behind it: NATS, Dynamo and HTTP, no model."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from kvtier import leash
from launcher import model, ports, servers
from launcher.runenv import ROOT

MODEL = "smollm2-glm"
SERVED_NAME = "scripted"
CONTEXT_TOKENS = 32_768
"""The largest tool set of tool-eval-bench takes some 10,000 tokens of the laptop's tokenizer."""
READY_WITHIN_S = 60.0
STOP_WITHIN_S = 10.0
POLL_S = 0.1


@contextmanager
def replaying_router() -> Iterator[str]:
    """The router's URL while the block runs; every process ends with it."""
    model_dir = model.ensure(MODEL)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-replay-")))
        nats = servers.Nats(folder / "nats", ports.free_port())
        nats.prepare()
        port = ports.free_port()
        env = _environment(folder, nats.url, port, model_dir)
        stack.enter_context(_process(nats.command(), env, folder / "nats.log"))
        _until(nats.is_ready, "NATS answers")
        for module in ("benches.toolcall.replay", "router"):
            log = folder / f"{module}.log"
            stack.enter_context(_process([sys.executable, "-m", module], env, log))
        url = f"http://127.0.0.1:{port}"
        try:
            _until(lambda: _has_worker(url), "the router has its worker")
        except TimeoutError as error:
            logs = "\n".join(path.read_text()[-2000:] for path in folder.glob("*.log"))
            raise TimeoutError(f"{error}\n{logs}") from error
        yield url


def _environment(folder: Path, nats_url: str, port: int, model_dir: Path) -> dict[str, str]:
    (folder / "dynamo").mkdir()
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT / "tools"),
        "PYTHONHASHSEED": "0",
        "NATS_URL": nats_url,
        "NATS_SERVER": nats_url,
        "DYN_FILE_KV": str(folder / "dynamo"),
        "DYN_DISCOVERY_BACKEND": "file",
        "DYN_REQUEST_PLANE": "tcp",
        "DYN_EVENT_PLANE": "nats",
        "DYN_TCP_RPC_HOST": "127.0.0.1",
        "DYN_NAMESPACE": f"replay-{port}",
        "DYN_LOG": "warn",
        "OBSERVE_TRACE_DIR": str(folder / "traces"),
        "ROUTER_HTTP_PORT": str(port),
        "ROUTER_MODEL_DIR": str(model_dir),
        "ROUTER_MODEL_NAME": SERVED_NAME,
        "ROUTER_CONTEXT_TOKENS": str(CONTEXT_TOKENS),
    }


@contextmanager
def _process(command: list[str], env: dict[str, str], log: Path) -> Iterator[Any]:
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, str(Path(leash.__file__)), str(os.getpid()), *command],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _has_worker(url: str) -> bool:
    try:
        return bool(httpx.get(f"{url}/healthz").json()["decode_workers"])
    except (httpx.HTTPError, ValueError):
        return False


def _until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {READY_WITHIN_S:.0f} s: {what}")
        time.sleep(POLL_S)
