"""What the health tests work with: beating processes, and health seen through its own gRPC."""

import asyncio
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from google.protobuf import json_format

from millrace.v1 import fleet_pb2, fleet_pb2_grpc
from tests.fixtures.processes import ServiceProcess, StartService
from tests.fixtures.servers import NatsServer
from tests.fixtures.wait import until
from wire import grpc_edge

STARTS_WITHIN_S = 15.0


class Beater(ServiceProcess):
    """A beating process with a record of the test's choice."""

    def __init__(self, record: fleet_pb2.ServiceRecord, nats_url: str, folder: Path) -> None:
        self.record = record
        self.instance = record.instance
        text = json_format.MessageToJson(record, indent=None)
        command = [sys.executable, "-m", "tests.services.health.beater", text]
        super().__init__(record.instance, command, {"NATS_URL": nats_url}, folder / record.instance)

    def drain(self) -> None:
        """Makes it say DRAINING from its next beat on, which is sent at once."""
        os.kill(self.pid, signal.SIGUSR1)


class Beaters:
    """Starts beaters in a cluster of their own; all are killed at the end of the test."""

    def __init__(self, nats_url: str, folder: Path) -> None:
        self.cluster = f"c{uuid.uuid4().hex[:8]}"
        self._nats_url = nats_url
        self._folder = folder
        self._started: list[Beater] = []

    def start(
        self, service: str, *, model: str = "tiny", pool: str = "serverless", context: int = 2048
    ) -> Beater:
        """A READY process of this service that serves the model."""
        instance = f"{service}-{uuid.uuid4().hex[:8]}"
        record = fleet_pb2.ServiceRecord(
            service=service,
            instance=instance,
            cluster=self.cluster,
            state=fleet_pb2.SERVICE_STATE_READY,
            models=[fleet_pb2.ServedModel(name=model, pool=pool, context_tokens=context)],
        )
        if service in ("router", "upstream"):
            record.http_url = f"http://127.0.0.1:1/{instance}"
        self._started.append(Beater(record, self._nats_url, self._folder))
        return self._started[-1]

    def kill_all(self) -> None:
        """Leaves no process behind."""
        for beater in self._started:
            beater.kill()


class Watched:
    """One health process, followed on both streams."""

    def __init__(self, process: ServiceProcess, target: str) -> None:
        self.process = process
        self.target = target
        self.services: list[tuple[float, fleet_pb2.ServiceList]] = []
        self.routes: list[tuple[float, fleet_pb2.RouteTable]] = []

    def state(self, beater: Beater) -> str | None:
        """The state in the newest service list, None for an unknown process."""
        status = self.status(beater)
        return None if status is None else fleet_pb2.ServiceState.Name(status.state)[14:]

    def status(self, beater: Beater) -> fleet_pb2.ServiceStatus | None:
        """The newest status of a process."""
        return next((s for s in self._newest() if s.record.instance == beater.instance), None)

    def beat_number(self, beater: Beater) -> int:
        """The number of the newest beat that health has shown; -1 before any."""
        status = self.status(beater)
        return -1 if status is None else int(status.record.notes["beat"])

    def deployment(self, cluster: str, model: str = "tiny") -> fleet_pb2.Deployment | None:
        """The newest state of one deployment."""
        tables = self.routes[-1][1].deployments if self.routes else ()
        found = (d for d in tables if d.cluster == cluster and d.model == model)
        return next(found, None)

    def deployment_state(self, cluster: str) -> str | None:
        """READY, DEGRADED, DOWN, or None for one that is not in the table."""
        found = self.deployment(cluster)
        return None if found is None else fleet_pb2.DeploymentState.Name(found.state)[17:]

    def logged_states(self, beater: Beater) -> list[str]:
        """Every state that the process went through; the streams may join two quick changes."""
        lines = (json.loads(line) for line in self.process.log().splitlines() if line[:1] == "{")
        key = f"{beater.record.service}.{beater.instance}"
        return [
            line["state"].removeprefix("SERVICE_STATE_")
            for line in lines
            if line["event"] == "service_state" and line["of"] == key
        ]

    async def until_all_beat_again(self, beaters: Iterable[Beater], within_s: float) -> None:
        """Returns when health has shown a newer beat of each."""
        seen = {beater: self.beat_number(beater) for beater in beaters}
        await until(
            lambda: all(self.beat_number(beater) > number for beater, number in seen.items()),
            within_s=within_s,
            what="every process shown with a newer beat",
        )

    async def until_time_has_passed(self, seconds: float) -> None:
        """Waits by health's own signs of life: it runs, and it has had the time to do wrong."""
        began, count = time.monotonic(), len(self.services)
        signs = int(seconds / grpc_edge.SIGN_OF_LIFE_S)
        await until(
            lambda: len(self.services) >= count + signs and time.monotonic() - began >= seconds,
            within_s=seconds * 3,
            what=f"{signs} signs of life over {seconds} s",
        )

    def _newest(self) -> Iterable[fleet_pb2.ServiceStatus]:
        return self.services[-1][1].services if self.services else ()


class Healths:
    """Starts health processes on one NATS server, and follows them."""

    def __init__(
        self, nats: NatsServer, start_service: StartService, free_port: Callable[[], int]
    ) -> None:
        self._nats = nats
        self._start_service = start_service
        self._free_port = free_port

    def start_only(self, *, mutant: str | None = None, port: int = 0) -> ServiceProcess:
        """A health process, however far it is."""
        env = {"NATS_URL": self._nats.url, "HEALTH_GRPC_PORT": str(port)}
        return self._start_service("health", env, mutant=mutant)

    @asynccontextmanager
    async def start_and_follow(self, *, mutant: str | None = None) -> AsyncIterator[Watched]:
        """A health process that may have published nothing yet."""
        port = self._free_port()
        process = self.start_only(mutant=mutant, port=port)
        watched = Watched(process, f"127.0.0.1:{port}")
        async with follow(watched):
            try:
                yield watched
            finally:
                process.kill()

    @asynccontextmanager
    async def run(self, *, mutant: str | None = None) -> AsyncIterator[Watched]:
        """A health process that has published its first look."""
        async with self.start_and_follow(mutant=mutant) as watched:
            await until(
                lambda: watched.services and watched.routes,
                within_s=STARTS_WITHIN_S,
                what="health publishes",
            )
            yield watched


@asynccontextmanager
async def follow(watched: Watched) -> AsyncIterator[None]:
    """Records both streams, across restarts of health."""
    async with grpc_edge.channel(watched.target) as channel:
        stub = fleet_pb2_grpc.FleetStub(channel)

        async def services() -> None:
            request = fleet_pb2.WatchServicesRequest(follower="test")
            async for message in grpc_edge.follow("services", lambda: stub.WatchServices(request)):
                watched.services.append((time.monotonic(), message))

        async def routes() -> None:
            request = fleet_pb2.WatchRoutesRequest(follower="test")
            async for message in grpc_edge.follow("routes", lambda: stub.WatchRoutes(request)):
                watched.routes.append((time.monotonic(), message))

        following = [asyncio.create_task(services()), asyncio.create_task(routes())]
        try:
            yield
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)


@asynccontextmanager
async def fleet_stub(watched: Watched) -> AsyncIterator[fleet_pb2_grpc.FleetStub]:
    """A client of the Fleet service."""
    async with grpc_edge.channel(watched.target) as channel:
        yield fleet_pb2_grpc.FleetStub(channel)
