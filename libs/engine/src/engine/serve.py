"""The process of a worker: settings, logs, and Dynamo's worker around the vLLM backend.

Dynamo's worker (dynamo.common.backend.run) owns the loop, the signals, discovery and the drain.
"""

import os
import tempfile
from typing import Any

import observe
from engine.settings import EngineSettings, Role
from engine.work import Work
from wire.ids import new_instance

COMPONENTS: dict[Role, str] = {"prefill": "prefill", "decode": "backend"}
"""Dynamo's component names of the two roles; the router addresses workers by them."""


def serve(role: Role) -> None:
    """Runs a worker until SIGTERM. Its settings come from the environment (`ENGINE_*`)."""
    # Before vLLM is imported: its own log handler would print beside ours.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    # The model folder is on every machine; its metadata need not be served to peers.
    os.environ.setdefault("DYN_SELF_HOST_METADATA", "0")
    from dynamo.common.backend.run import run

    from engine.backend import VllmBackend

    settings = EngineSettings()  # type: ignore[call-arg]  # filled from the environment
    with tempfile.TemporaryDirectory(prefix=f"millrace-{role}-") as ipc_folder:
        # A folder of its own for each worker: Mooncake's lookup socket has one name per host in it
        # (vllm/distributed/kv_transfer/kv_connector/v1/mooncake/store/worker.py,
        # get_zmq_rpc_path_lookup), so workers that share it answer each other's lookups, and one
        # waits for ever when the other dies.
        os.environ["VLLM_RPC_BASE_PATH"] = ipc_folder
        work = Work(settings, role, new_instance(role), ipc_folder)

        async def build(_: list[str] | None = None) -> tuple[VllmBackend, Any]:
            return await _build(work)

        run(VllmBackend, engine_factory=build)


async def _build(work: Work) -> tuple[Any, Any]:
    from dynamo.common.backend import WorkerConfig
    from dynamo.common.constants import DisaggregationMode

    from engine.backend import VllmBackend
    from engine.membership import Membership

    settings, role = work.settings, work.role
    observability = observe.setup(role, instance=work.instance, settings=observe.ObserveSettings())
    membership = Membership(work, observability.metrics_url)
    await membership.announce()
    modes = {"prefill": DisaggregationMode.PREFILL, "decode": DisaggregationMode.DECODE}
    config = WorkerConfig(
        namespace=settings.dynamo_namespace,
        component=COMPONENTS[role],
        endpoint="generate",
        model_name=str(settings.model_dir),
        served_model_name=settings.model_name,
        discovery_backend=settings.discovery_backend,
        request_plane=settings.request_plane,
        event_plane=settings.event_plane,
        disaggregation_mode=modes[role],
    )
    return VllmBackend(work, membership), config
