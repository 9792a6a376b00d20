"""Aborts on the workers' control ports: the second way to stop a call.

Dynamo 1.6 sends a cancel on the connection that brings the answer, which a worker opens only when
it has the request: under load a cancel can be lost on the way, and a prefill would compute a long
prompt for nobody. A worker's control port knows an abort that comes before its request.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import grpc
import grpc.aio

import observe
from millrace.v1 import worker_pb2, worker_pb2_grpc
from wire import grpc_edge

log = observe.get_logger(__name__)

ABORT_WITHIN_S = 60.0
"""A worker answers when the call has ended, and a call that pulls KV cannot end in the middle."""
CLOSE_GRACE_S = 1.0
"""An abort that is on its way may still reach a worker when the router stops."""


class WorkerControls:
    """The control ports by Dynamo's worker id, as the registry tells them."""

    def __init__(self) -> None:
        self._targets: dict[int, str] = {}
        # Opened at the first abort and kept: every answer that a stop string ends is an abort.
        self._channels: dict[int, grpc.aio.Channel] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def learn(self, worker_id: int, grpc_target: str) -> None:
        """A worker's control port is there; told again at each of its beats."""
        if self._targets.get(worker_id) != grpc_target:
            self.forget(worker_id)
            self._targets[worker_id] = grpc_target

    def forget(self, worker_id: int) -> None:
        """A worker left the registry."""
        self._targets.pop(worker_id, None)
        if channel := self._channels.pop(worker_id, None):
            self._start(channel.close(CLOSE_GRACE_S), f"close control port of {worker_id}")

    def abort(self, worker_id: int, call_id: str) -> None:
        """Asks the worker to end this call; returns at once. Failures are only logged."""
        target = self._targets.get(worker_id)
        if target is None:
            log.warning("abort_without_control_port", worker_id=worker_id, call_id=call_id)
            return
        if worker_id not in self._channels:
            self._channels[worker_id] = grpc_edge.channel(target)
        self._start(_abort(self._channels[worker_id], target, call_id), f"abort {call_id}")

    async def close(self) -> None:
        """Ends what still runs and closes all channels."""
        for worker_id in list(self._targets):
            self.forget(worker_id)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _abort(channel: grpc.aio.Channel, target: str, call_id: str) -> None:
    stub = worker_pb2_grpc.WorkerControlStub(channel)
    request = worker_pb2.AbortRequestRequest(request_id=call_id)
    try:
        await stub.AbortRequest(request, timeout=ABORT_WITHIN_S)
    except grpc.aio.AioRpcError as error:
        log.warning("abort_failed", target=target, call_id=call_id, code=error.code().name)
    except asyncio.CancelledError:
        # The worker left and its channel was closed under the call, or the router stops.
        log.info("abort_cut_off", target=target, call_id=call_id)
        raise
