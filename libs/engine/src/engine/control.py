"""The WorkerControl gRPC service: what operators and the platform ask of a worker."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

import observe
from engine.work import Work
from millrace.v1 import worker_pb2, worker_pb2_grpc

log = observe.get_logger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class WorkerControl(worker_pb2_grpc.WorkerControlServicer):
    """Serves status, drain, resume and abort of one worker."""

    def __init__(
        self,
        work: Work,
        abort: Callable[[str], Awaitable[bool]],
        state_changed: Callable[[], None],
    ) -> None:
        self._work = work
        self._abort = abort
        self._state_changed = state_changed

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
        log.info("drain_begins", reason=request.reason, running=len(self._work.running))
        self._work.is_draining = True
        self._state_changed()
        await self._work.running.wait_until_idle()
        log.info("drain_done")
        return self._status()

    async def ResumeWorker(  # noqa: N802
        self,
        request: worker_pb2.ResumeWorkerRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> worker_pb2.WorkerStatus:
        """Takes requests again."""
        self._work.is_draining = False
        self._state_changed()
        return self._status()

    async def AbortRequest(  # noqa: N802
        self,
        request: worker_pb2.AbortRequestRequest,
        context: Context,  # noqa: ARG002
    ) -> worker_pb2.AbortRequestReply:
        """Stops one request as soon as that is safe, also one that is still on its way here."""
        was_running = await self._abort(request.request_id)
        return worker_pb2.AbortRequestReply(was_running=was_running)

    def _status(self) -> worker_pb2.WorkerStatus:
        work, counters = self._work, self._work.counters
        return worker_pb2.WorkerStatus(
            instance=work.instance,
            role=work.role,
            is_draining=work.is_draining,
            running_requests=len(work.running),
            kv_blocks_total=counters.kv_blocks_total,
            kv_blocks_used=counters.kv_blocks_used,
            block_tokens=work.settings.block_tokens,
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
