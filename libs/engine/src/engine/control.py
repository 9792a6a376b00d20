"""The WorkerControl gRPC service: what operators and the platform ask of a worker."""

from typing import TYPE_CHECKING, Any

import grpc

import observe
from millrace.v1 import worker_pb2, worker_pb2_grpc

if TYPE_CHECKING:
    from engine.backend import VllmBackend

log = observe.get_logger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class WorkerControl(worker_pb2_grpc.WorkerControlServicer):
    """Serves status, drain, resume and abort for one backend."""

    def __init__(self, backend: "VllmBackend") -> None:
        self._backend = backend

    async def GetWorkerStatus(  # noqa: N802  # gRPC's name
        self,
        request: worker_pb2.GetWorkerStatusRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> worker_pb2.WorkerStatus:
        """Counters since the process started."""
        return self._status()

    async def DrainWorker(  # noqa: N802
        self,
        request: worker_pb2.DrainWorkerRequest,
        context: Context,  # noqa: ARG002
    ) -> worker_pb2.WorkerStatus:
        """Refuses new requests and answers when the last one has ended."""
        log.info("drain_begins", reason=request.reason, running=len(self._backend.running))
        self._backend.is_draining = True
        self._backend.membership.state_changed()
        await self._backend.running.wait_until_idle()
        log.info("drain_done")
        return self._status()

    async def ResumeWorker(  # noqa: N802
        self,
        request: worker_pb2.ResumeWorkerRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> worker_pb2.WorkerStatus:
        """Takes requests again."""
        self._backend.is_draining = False
        self._backend.membership.state_changed()
        return self._status()

    async def AbortRequest(  # noqa: N802
        self,
        request: worker_pb2.AbortRequestRequest,
        context: Context,  # noqa: ARG002
    ) -> worker_pb2.AbortRequestReply:
        """Stops one request as soon as that is safe."""
        was_running = await self._backend.abort_request(request.request_id)
        return worker_pb2.AbortRequestReply(was_running=was_running)

    def _status(self) -> worker_pb2.WorkerStatus:
        backend, counters = self._backend, self._backend.counters
        return worker_pb2.WorkerStatus(
            instance=backend.membership.instance,
            role=backend.role,
            is_draining=backend.is_draining,
            running_requests=len(backend.running),
            kv_blocks_total=counters.kv_blocks_total,
            kv_blocks_used=counters.kv_blocks_used,
            block_tokens=backend.settings.block_tokens,
            nixl_bytes_pulled=counters.nixl_bytes_pulled,
            nixl_descriptors=counters.nixl_descriptors,
            nixl_failures=counters.nixl_failures,
            nixl_leases_expired=counters.nixl_leases_expired,
            kvtier_bytes_stored=counters.kvtier_bytes_stored,
            kvtier_bytes_loaded=counters.kvtier_bytes_loaded,
            kvtier_failures=counters.kvtier_failures,
            prompt_tokens=counters.prompt_tokens,
            cached_tokens=counters.cached_tokens,
            generated_tokens=counters.generated_tokens,
        )
