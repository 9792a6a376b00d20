"""THE list of processes of a stack: commands, environments and readiness probes.

`up` starts exactly this, and a test compares docker-compose.yml with it. Every service gets its
whole environment here; nothing leaks in from the shell.
"""

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher.runenv import MARK, RunDir
from launcher.servers import Nats, Postgres

HOST = "127.0.0.1"
CLUSTER = "local"
MAX_BODY_BYTES = 8 << 20
STORE_SEGMENT_MB = 256
"""Memory that the one store node of the KV tier lends out."""
KV_LEASE_S = 10
LOCAL_ONLY = frozenset({MARK, "SPT_NOENV"})
"""What only local processes carry, so that `down` finds them: no container needs it."""


@dataclass(frozen=True)
class Shape:
    """What a person asked for."""

    model: str = "smollm2"
    prefill: int = 1
    decode: int = 1

    def workers(self) -> list[tuple[str, str]]:
        """Name and service of every worker."""
        roles = (("prefill", self.prefill), ("decode", self.decode))
        return [(f"{role}-{n + 1}", role) for role, count in roles for n in range(count)]


@dataclass(frozen=True)
class Process:
    """One process; without a probe its own registry record says when it is ready."""

    name: str
    service: str
    """Its folder in services/, or the server's name; also its name in docker-compose.yml."""
    command: tuple[str, ...]
    env: Mapping[str, str]
    probe: Callable[[], bool] | None = None
    stop_signal: str = "TERM"
    stop_wait_s: int = 8
    """Services stop within 5 s of SIGTERM; after this long they are killed."""


@dataclass(frozen=True)
class Plan:
    """Everything that the processes of one stack are made from."""

    run: RunDir
    shape: Shape
    ports: Mapping[str, int]
    secrets: Mapping[str, str]
    model_dir: Path

    @property
    def nats(self) -> Nats:
        """The NATS server."""
        return Nats(self.run.root / "nats", self.ports["nats"])

    @property
    def postgres(self) -> Postgres:
        """The Postgres server."""
        password = self.secrets["POSTGRES_PASSWORD"]
        return Postgres(self.run.root / "postgres", self.ports["postgres"], password)

    @property
    def mooncake_config(self) -> Path:
        """Written by kvtier, read by the workers."""
        return self.run.root / "kvtier" / "mooncake.json"

    @property
    def discovery(self) -> Path:
        """Dynamo's discovery folder."""
        return self.run.root / "dynamo"

    def address(self, port: str) -> str:
        """host:port by the port's name."""
        return f"{HOST}:{self.ports[port]}"


def port_names(shape: Shape) -> list[str]:
    """Every port of a stack; the public one is first, so that `--ports-from` names it."""
    names = ["gateway.http", "billing.http", "nats", "postgres", "supervisor"]
    names += ["kvtier.master", "kvtier.metadata", "kvtier.master-metrics", "kvtier.grpc"]
    names += ["health.grpc", "billing.grpc", "router.http"]
    names += [f"{service}.metrics" for service in ("kvtier", "health", "billing", "gateway")]
    names += ["router.metrics"]
    for worker, _ in shape.workers():
        names += [f"{worker}.control", f"{worker}.nixl", f"{worker}.metrics"]
    return names


def processes(plan: Plan) -> list[Process]:
    """The stack, in reading order: every service waits for what it needs."""
    workers = [_worker(plan, name, role) for name, role in plan.shape.workers()]
    return [
        _nats(plan),
        _postgres(plan),
        _kvtier(plan),
        _health(plan),
        _billing(plan),
        *workers,
        _router(plan),
        _gateway(plan),
    ]


def _nats(plan: Plan) -> Process:
    server = plan.nats
    return Process(
        "nats", "nats", tuple(server.command()), _mark(plan), server.is_ready, stop_wait_s=10
    )


def _postgres(plan: Plan) -> Process:
    server = plan.postgres
    return Process(
        name="postgres",
        service="postgres",
        command=tuple(server.command()),
        env=_mark(plan),
        probe=server.is_ready,
        stop_signal="INT",  # ends its clients at once; TERM would wait for them
        stop_wait_s=20,
    )


def _kvtier(plan: Plan) -> Process:
    return _service(
        plan,
        "kvtier",
        "kvtier",
        {
            "KVTIER_MASTER_PORT": plan.ports["kvtier.master"],
            "KVTIER_METADATA_PORT": plan.ports["kvtier.metadata"],
            "KVTIER_MASTER_METRICS_PORT": plan.ports["kvtier.master-metrics"],
            "KVTIER_GRPC_PORT": plan.ports["kvtier.grpc"],
            "KVTIER_SEGMENT_MB": STORE_SEGMENT_MB,
            "KVTIER_STATE_DIR": plan.mooncake_config.parent,
            "KVTIER_LEASE_S": KV_LEASE_S,
        },
    )


def _health(plan: Plan) -> Process:
    return _service(plan, "health", "health", {"HEALTH_GRPC_PORT": plan.ports["health.grpc"]})


def _billing(plan: Plan) -> Process:
    return _service(
        plan,
        "billing",
        "billing",
        {
            "BILLING_DATABASE_URL": plan.postgres.url(),
            "BILLING_GRPC_PORT": plan.ports["billing.grpc"],
            "BILLING_HTTP_PORT": plan.ports["billing.http"],
            "BILLING_ADMIN_KEY_SHA256": hashlib.sha256(
                plan.secrets["ADMIN_KEY"].encode()
            ).hexdigest(),
        },
    )


def _gateway(plan: Plan) -> Process:
    return _service(
        plan,
        "gateway",
        "gateway",
        {
            "GATEWAY_HTTP_PORT": plan.ports["gateway.http"],
            "BILLING_TARGET": plan.address("billing.grpc"),
            "HEALTH_TARGET": plan.address("health.grpc"),
            "GATEWAY_SPOOL_DIR": plan.run.root / "gateway-spool",
            "GATEWAY_MAX_BODY_BYTES": MAX_BODY_BYTES,
        },
    )


def _router(plan: Plan) -> Process:
    return _service(
        plan,
        "router",
        "router",
        {
            "ROUTER_HTTP_PORT": plan.ports["router.http"],
            "ROUTER_MODEL_DIR": plan.model_dir,
            "ROUTER_MODEL_NAME": plan.shape.model,
            # Even a short prompt takes the whole path here: that is what a laptop is to show.
            "ROUTER_LOCAL_PREFILL_MAX_TOKENS": 0,
            **_dynamo(plan),
        },
    )


def _worker(plan: Plan, name: str, role: str) -> Process:
    return _service(
        plan,
        name,
        role,
        {
            "ENGINE_MODEL_DIR": plan.model_dir,
            "ENGINE_MODEL_NAME": plan.shape.model,
            "ENGINE_CONTROL_PORT": plan.ports[f"{name}.control"],
            "MOONCAKE_CONFIG_PATH": plan.mooncake_config,
            "VLLM_NIXL_SIDE_CHANNEL_HOST": HOST,
            "VLLM_NIXL_SIDE_CHANNEL_PORT": plan.ports[f"{name}.nixl"],
            "VLLM_HOST_IP": HOST,
            "VLLM_NO_USAGE_STATS": 1,
            "VLLM_CPU_KVCACHE_SPACE": 1,  # GiB
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": 1,
            # vLLM renames its processes; without this the new name overwrites the environment
            # block in which `down` looks for the run folder's mark.
            "SPT_NOENV": 1,
            **_dynamo(plan),
        },
    )


def _dynamo(plan: Plan) -> dict[str, object]:
    """The environment by which router and workers find and reach each other."""
    return {
        "DYN_DISCOVERY_BACKEND": "file",
        "DYN_FILE_KV": plan.discovery,
        "DYN_REQUEST_PLANE": "tcp",
        "DYN_EVENT_PLANE": "nats",
        "DYN_TCP_RPC_HOST": HOST,
        "DYN_NAMESPACE": "millrace",
        # Its span of every call is logged at info whatever the level.
        "DYN_LOG": "warn,request_span=warn",
        "DYN_LOGGING_JSONL": 1,
        "NATS_SERVER": plan.nats.url,
        "HF_HUB_OFFLINE": 1,
        # Block hashes must agree between processes.
        "PYTHONHASHSEED": 0,
    }


def _service(plan: Plan, name: str, service: str, env: Mapping[str, object]) -> Process:
    shared = {
        "NATS_URL": plan.nats.url,
        "MILLRACE_CLUSTER": CLUSTER,
        "MILLRACE_HOST": HOST,
        "MILLRACE_ADVERTISE_HOST": HOST,
        "OBSERVE_LOG_LEVEL": "info",
        "OBSERVE_METRICS_HOST": HOST,
        "OBSERVE_METRICS_PORT": plan.ports[f"{name}.metrics"],
        "OBSERVE_TRACE_DIR": plan.run.root / "traces",
    }
    values = {key: str(value) for key, value in {**shared, **env}.items()}
    stop_wait_s = 20 if service in ("prefill", "decode") else 8
    return Process(
        name=name,
        service=service,
        command=(sys.executable, "-m", service),
        env={**values, **_mark(plan)},
        stop_wait_s=stop_wait_s,
    )


def _mark(plan: Plan) -> dict[str, str]:
    return {MARK: str(plan.run.root)}
