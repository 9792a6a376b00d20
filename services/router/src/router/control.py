"""Aborts on the workers' control ports: the second way to stop a call.

Dynamo 1.6 sends a cancel on the connection that brings the answer, which a worker opens only when
it has the request: under load a cancel can be lost on the way, and a prefill would compute a long
prompt for nobody. A worker's control port knows an abort that comes before its request.
"""

import asyncio

import grpc
import grpc.aio

import observe
from millrace.v1 import worker_pb2, worker_pb2_grpc
from wire import grpc_edge

log = observe.get_logger(__name__)

ABORT_WITHIN_S = 60.0
"""A worker answers when the call has ended, and a call that pulls KV cannot end in the middle."""


class WorkerControls:
    """The control ports by Dynamo's worker id, as the registry tells them."""

    def __init__(self) -> None:
        self._targets: dict[int, str] = {}
        self._aborts: set[asyncio.Task[None]] = set()

    def learn(self, worker_id: int, grpc_target: str) -> None:
        """A worker's control port is there."""
        self._targets[worker_id] = grpc_target

    def forget(self, worker_id: int) -> None:
        """A worker left the registry."""
        self._targets.pop(worker_id, None)

    def abort(self, worker_id: int, call_id: str) -> None:
        """Asks the worker to end this call; returns at once. Failures are only logged."""
        target = self._targets.get(worker_id)
        if target is None:
            log.warning("abort_without_control_port", worker_id=worker_id, call_id=call_id)
            return
        task = asyncio.create_task(_abort(target, call_id), name=f"abort {call_id}")
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)


async def _abort(target: str, call_id: str) -> None:
    # A channel for each abort: they are rare, and a worker that left takes no channel with it.
    async with grpc_edge.channel(target) as channel:
        stub = worker_pb2_grpc.WorkerControlStub(channel)
        request = worker_pb2.AbortRequestRequest(request_id=call_id)
        try:
            await stub.AbortRequest(request, timeout=ABORT_WITHIN_S)
        except grpc.aio.AioRpcError as error:
            log.warning("abort_failed", target=target, call_id=call_id, code=error.code().name)
