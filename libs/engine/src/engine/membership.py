"""A worker's place in the cluster: its record, its control port, and its liveness.

Invariant: a worker whose EngineCore is dead leaves at once. vLLM's parent process survives the
death of its EngineCore and would stay registered and be given requests; so it exits, and its
supervisor starts it again.
"""

import asyncio
import os
from collections.abc import Callable

from grpc.aio import Server
from nats.aio.client import Client

import observe
from engine.control import WorkerControl
from engine.work import Work
from millrace.v1 import fleet_pb2, worker_pb2_grpc
from wire import grpc_edge, nats_connection
from wire.heartbeat import Heartbeat, new_record

log = observe.get_logger(__name__)

LIVENESS_INTERVAL_S = 0.5
EXIT_GRACE_S = 0.3
"""Lets the errors of running requests reach the router before the process ends."""
EXIT_ENGINE_DEAD = 13


class Membership:
    """Registers a worker while its engine lives."""

    def __init__(self, work: Work, metrics_url: str) -> None:
        self._work = work
        self._record = new_record(work.role, work.instance, work.settings.cluster, "0.1.0")
        self._record.metrics_url = metrics_url
        self._nc: Client | None = None
        self._server: Server | None = None
        self._heartbeat: Heartbeat | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def announce(self) -> None:
        """Beats as STARTING: operators see the worker while its engine loads."""
        self._nc = await nats_connection.connect(self._work.settings.nats_url, self._work.instance)
        self._heartbeat = Heartbeat(self._nc, lambda: self._record)
        self._tasks.append(asyncio.create_task(self._heartbeat.run(), name="heartbeat"))

    async def enter(
        self, worker_id: int, control: WorkerControl, is_engine_dead: Callable[[], bool]
    ) -> None:
        """Serves the control port and beats as READY, from the moment the engine is up."""
        settings = self._work.settings
        self._server, target = await grpc_edge.serve(
            settings.host,
            settings.control_port,
            lambda server: worker_pb2_grpc.add_WorkerControlServicer_to_server(control, server),
        )
        port = target.rpartition(":")[2]
        record = self._record
        record.grpc_target = f"{settings.advertise_host or settings.host}:{port}"
        record.worker_id = worker_id
        record.models.add(
            name=settings.model_name, pool=settings.pool, context_tokens=settings.max_model_len
        )
        self.state_changed()
        self._tasks.append(asyncio.create_task(self._watch_engine(is_engine_dead), name="liveness"))

    def state_changed(self) -> None:
        """Tells the registry at once whether the worker takes requests."""
        self._record.state = (
            fleet_pb2.SERVICE_STATE_DRAINING
            if self._work.is_draining
            else fleet_pb2.SERVICE_STATE_READY
        )
        if self._heartbeat is not None:
            self._heartbeat.beat_now()

    async def leave(self) -> None:
        """Withdraws the record and closes the control port."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._server is not None:
            await self._server.stop(grpc_edge.STOP_GRACE_S)
        if self._nc is not None:
            await self._nc.close()
        self._server = self._nc = None

    def engine_died(self, error: BaseException | None) -> None:
        """Ends the process shortly: nothing in it can serve any more."""
        log.error("engine_died", error=repr(error), exit_code=EXIT_ENGINE_DEAD)
        asyncio.get_running_loop().call_later(EXIT_GRACE_S, os._exit, EXIT_ENGINE_DEAD)

    async def _watch_engine(self, is_engine_dead: Callable[[], bool]) -> None:
        while not is_engine_dead():
            await asyncio.sleep(LIVENESS_INTERVAL_S)
        self.engine_died(None)
