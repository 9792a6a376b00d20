"""A real router process in a cluster of scripted workers."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from launcher import model, ports
from tests.fixtures.processes import ServiceProcess
from tests.fixtures.wait import until_sync


@dataclass
class Cluster:
    """One router and its workers."""

    url: str
    env: dict[str, str]
    script_file: Path
    router: ServiceProcess | None = None
    workers: dict[str, ServiceProcess] = field(default_factory=dict)

    def script(self, **names):
        self.script_file.write_text(json.dumps(names))

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
        files = sorted(self.script_file.parent.glob(f"*.{role}.*.requests"))
        lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        return [line for line in lines if "request" in line]

    def aborts(self, role):
        files = sorted(self.script_file.parent.glob(f"*.{role}.*.requests"))
        lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        return [line["aborted"] for line in lines if "aborted" in line]

    def stop(self):
        for process in self.workers.values():
            process.kill()
        self.workers.clear()


@pytest.fixture(scope="session")
def model_dir():
    """The small real model's folder: the router needs its tokenizer and template."""
    return model.ensure("smollm2")


@pytest.fixture(scope="session")
def glm_dir():
    """The folder of the model with GLM's control tokens and template."""
    return model.ensure("smollm2-glm")


@pytest.fixture
def make_cluster(nats_server, start_service, model_dir, tmp_path):
    """Starts a router, then the asked workers; waits until the router sees them."""
    clusters = []

    def make(prefill=1, decode=1, model_dir=model_dir, **settings):
        discovery = tmp_path / "dynamo"
        discovery.mkdir(exist_ok=True)
        port = ports.free_port()
        env = {
            "NATS_URL": nats_server.url,
            "NATS_SERVER": nats_server.url,
            "DYN_FILE_KV": str(discovery),
            "DYN_DISCOVERY_BACKEND": "file",
            "DYN_REQUEST_PLANE": "tcp",
            "DYN_EVENT_PLANE": "nats",
            "DYN_TCP_RPC_HOST": "127.0.0.1",
            "DYN_NAMESPACE": f"test-{port}",
            "DYN_LOG": "warn",
            "PYTHONHASHSEED": "0",
            "OBSERVE_TRACE_DIR": str(tmp_path / "traces"),
            "ROUTER_HTTP_PORT": str(port),
            "ROUTER_MODEL_DIR": str(model_dir),
            "ROUTER_MODEL_NAME": "scripted",
            "ROUTER_LOCAL_PREFILL_MAX_TOKENS": "0",
            **{f"ROUTER_{name.upper()}": str(value) for name, value in settings.items()},
        }
        cluster = Cluster(f"http://127.0.0.1:{port}", env, tmp_path / "script.json")
        cluster.script()
        clusters.append(cluster)
        for index in range(prefill):
            cluster.start(f"prefill-{index}", "prefill")
        for index in range(decode):
            cluster.start(f"decode-{index}", "decode")
        cluster.router = start_service("router", env).wait_ready()
        cluster.wait_for(prefill, decode)
        return cluster

    yield make
    for cluster in clusters:
        cluster.stop()
