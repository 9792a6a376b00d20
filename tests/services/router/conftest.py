"""A real router process in a cluster of scripted workers."""

import itertools
import json
import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import httpx
import pytest

from launcher import model, ports
from tests.fixtures import dynamo
from tests.fixtures.processes import ServiceProcess, start_service
from tests.fixtures.wait import until_sync

SCRIPTS = itertools.count(1)


@dataclass
class Cluster:
    """One router and its workers."""

    url: str
    env: dict[str, str]
    script_file: Path
    router: ServiceProcess | None = None
    workers: dict[str, ServiceProcess] = field(default_factory=dict)
    forgotten: Counter[Path] = field(default_factory=Counter)

    def script(self, **names):
        self.script_file.write_text(json.dumps({"number": next(SCRIPTS), **names}))

    def forget(self):
        """A cluster as new to a test: no script, nothing noted and nothing logged."""
        self.script()
        for path in self.script_file.parent.glob("*.requests"):
            self.forgotten[path] = len(path.read_text().splitlines())
        self.forgotten[self.script_file] = len(self.router.log())

    def router_log(self):
        return self.router.log()[self.forgotten[self.script_file] :]

    def start(self, name, role):
        module = "tests.services.router.scripted_worker"
        command = [sys.executable, "-m", module, role, str(self.script_file)]
        log = self.script_file.with_name(f"{name}.log")
        self.workers[name] = ServiceProcess(name, command, self.env, log)

    def counts(self):
        body = httpx.get(f"{self.url}/healthz").json()
        return body["prefill_workers"], body["decode_workers"]

    def wait_for(self, prefill, decode):
        until_sync(lambda: self.counts() == (prefill, decode), within_s=30)

    def requests(self, role):
        """Everything that workers of this role were sent."""
        return [line for line in self._noted(role) if "request" in line]

    def aborts(self, role):
        return [line["aborted"] for line in self._noted(role) if "aborted" in line]

    def _noted(self, role):
        for path in sorted(self.script_file.parent.glob(f"*.{role}.*.requests")):
            yield from map(json.loads, path.read_text().splitlines()[self.forgotten[path] :])

    def stop(self):
        for process in self.workers.values():
            process.kill()
        self.workers.clear()
        if self.router is not None:
            self.router.kill()


@pytest.fixture(scope="session")
def model_dir():
    """The small real model's folder: the router needs its tokenizer and template."""
    return model.ensure("smollm2")


@pytest.fixture(scope="session")
def glm_dir():
    """The folder of the model with GLM's control tokens and template."""
    return model.ensure("smollm2-glm")


@contextmanager
def opened_cluster(nats_url, folder, model_dir, prefill=1, decode=1, **settings):
    """A router and so many workers, when the router sees them."""
    discovery = folder / "dynamo"
    discovery.mkdir(exist_ok=True)
    port = ports.free_port()
    env = {
        **dynamo.environment(nats_url, discovery, f"test-{port}"),
        "PYTHONHASHSEED": "0",
        "OBSERVE_TRACE_DIR": str(folder / "traces"),
        "ROUTER_HTTP_PORT": str(port),
        "ROUTER_MODEL_DIR": str(model_dir),
        "ROUTER_MODEL_NAME": "scripted",
        "ROUTER_LOCAL_PREFILL_MAX_TOKENS": "0",
        **{f"ROUTER_{name.upper()}": str(value) for name, value in settings.items()},
    }
    cluster = Cluster(f"http://127.0.0.1:{port}", env, folder / "script.json")
    cluster.script()
    try:
        for index in range(prefill):
            cluster.start(f"prefill-{index}", "prefill")
        for index in range(decode):
            cluster.start(f"decode-{index}", "decode")
        cluster.router = start_service("router", env, log=folder / "router.log")
        cluster.router.wait_ready()
        cluster.wait_for(prefill, decode)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def make_cluster(nats_server, model_dir, tmp_path):
    """Opens a cluster of a test's own."""
    with ExitStack() as stack:

        def make(**wishes):
            wishes = {"model_dir": model_dir, **wishes}
            return stack.enter_context(opened_cluster(nats_server.url, tmp_path, **wishes))

        yield make


@pytest.fixture(scope="session")
def shared_cluster(nats_server, tmp_path_factory):
    """The one cluster of a model for all tests that leave its three processes alive."""
    with ExitStack() as stack:

        @cache
        def opened(model_dir):
            folder = tmp_path_factory.mktemp("cluster")
            return stack.enter_context(opened_cluster(nats_server.url, folder, model_dir))

        def shared(model_dir):
            opened(model_dir).forget()
            return opened(model_dir)

        yield shared


@pytest.fixture
def cluster(shared_cluster, model_dir):
    """A router with a prefill and a decode worker."""
    return shared_cluster(model_dir)


@pytest.fixture
def glm_cluster(shared_cluster, glm_dir):
    """The same with the model that has GLM's tokens."""
    return shared_cluster(glm_dir)
