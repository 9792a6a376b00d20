"""What the kvtier tests work with: the real service, its children, and clients as workers are."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import psutil

from millrace.v1 import kvtier_pb2, kvtier_pb2_grpc
from tests.fixtures.processes import ServiceProcess, StartService
from tests.fixtures.wait import ConditionNotMet, until_sync

STARTS_WITHIN_S = 30.0
ANSWERS_WITHIN_S = 60.0
SEGMENT_MB = 64


class Client:
    """One worker-like process; commands go in and answers come out by pipes."""

    def __init__(self, config: Path, log: Path, segment_mb: int = 0) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.services.kvtier.client", config, str(segment_mb)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._expect("ready")

    def put(self, first: int, count: int) -> dict[str, int]:
        """Stores objects; how many were answered with which code."""
        self._send(f"put {first} {count}")
        codes: dict[str, int] = json.loads(self._line())["codes"]
        return codes

    def begin_get(self, first: int, count: int) -> None:
        """Starts a batch read and returns while it runs."""
        self._send(f"get {first} {count}")
        self._expect("reading")

    def end_get(self) -> dict[str, float]:
        """The outcome of the batch read."""
        outcome: dict[str, float] = json.loads(self._line())
        return outcome

    def get(self, first: int, count: int) -> dict[str, float]:
        """Reads a batch: ok, wrong, failed."""
        self.begin_get(first, count)
        return self.end_get()

    def pause(self) -> None:
        """SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Ends it and its pipes."""
        self._process.kill()
        self._process.communicate()

    def _send(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        self._process.stdin.flush()

    def _expect(self, word: str) -> None:
        line = self._line()
        assert line == word, f"expected {word!r}, got {line!r}"

    def _line(self) -> str:
        assert self._process.stdout is not None
        is_there, _, _ = select.select([self._process.stdout], [], [], ANSWERS_WITHIN_S)
        assert is_there, f"no answer of the client within {ANSWERS_WITHIN_S} s"
        return self._process.stdout.readline().decode().strip()


class TierUnderTest:
    """One state folder and its ports; kvtier may be started on them again and again."""

    def __init__(
        self,
        nats_url: str,
        start_service: StartService,
        free_port: Callable[[], int],
        folder: Path,
        lease_s: float,
    ) -> None:
        self.folder = folder
        self.lease_s = lease_s
        self._start_service = start_service
        self._clients: list[Client] = []
        self._grpc_port = free_port()
        self.env = {
            "NATS_URL": nats_url,
            "KVTIER_MASTER_PORT": str(free_port()),
            "KVTIER_METADATA_PORT": str(free_port()),
            "KVTIER_MASTER_METRICS_PORT": str(free_port()),
            "KVTIER_GRPC_PORT": str(self._grpc_port),
            "KVTIER_SEGMENT_MB": str(SEGMENT_MB),
            "KVTIER_STATE_DIR": str(folder),
            "KVTIER_LEASE_S": str(lease_s),
            "OBSERVE_METRICS_PORT": str(free_port()),
        }
        self.process: ServiceProcess

    def start(self, *, mutant: str | None = None) -> None:
        """Starts kvtier; returns at once."""
        self.process = self._start_service("kvtier", self.env, mutant=mutant)

    def stats(self) -> kvtier_pb2.KvTierStats | None:
        """What kvtier answers over gRPC, None while it does not."""
        with grpc.insecure_channel(f"127.0.0.1:{self._grpc_port}") as channel:
            stub = kvtier_pb2_grpc.KvTierStub(channel)
            try:
                return stub.GetKvTierStats(kvtier_pb2.GetKvTierStatsRequest(), timeout=2)
            except grpc.RpcError:
                return None

    def state(self) -> str:
        """READY, QUARANTINED, DOWN, or "" while kvtier does not answer."""
        stats = self.stats()
        return "" if stats is None else kvtier_pb2.KvTierState.Name(stats.state)[14:]

    def until_state(self, state: str, within_s: float = STARTS_WITHIN_S) -> float:
        """Returns the moment at which kvtier said that it is in this state."""
        try:
            until_sync(lambda: self.state() == state, within_s=within_s, what=f"tier is {state}")
        except ConditionNotMet as error:
            error.add_note(f"state {self.state()!r}; {self.logs()}")
            raise
        return time.monotonic()

    def logs(self) -> str:
        """The ends of kvtier's log and its children's, for messages."""
        files = [*sorted(self.folder.glob("*.log")), *sorted(self.folder.glob("*.log.1"))]
        tails = [f"{path.name}:\n{path.read_text(errors='replace')[-2_000:]}" for path in files]
        return "\n".join([f"kvtier:\n{self.process.tail()}", *tails])

    def child(self, name: str) -> psutil.Process:
        """The running master ("mooncake_master") or node ("kvtier.node")."""
        return until_sync(lambda: self.find_child(name), what=f"{name} runs")

    def client(self, segment_mb: int = 0) -> Client:
        """A new worker-like client; it ends with the test."""
        self._clients.append(
            Client(self.folder / "mooncake.json", self.folder / "client.log", segment_mb)
        )
        return self._clients[-1]

    def kill_only_kvtier(self) -> None:
        """SIGKILL to kvtier itself and to nobody else."""
        os.kill(self.process.pid, signal.SIGKILL)
        until_sync(lambda: self.process.exit_code is not None, what="kvtier is dead")

    def close(self) -> None:
        """Ends the clients; the service fixture ends kvtier."""
        for client in self._clients:
            client.close()

    def find_child(self, name: str) -> psutil.Process | None:
        """The child if it runs."""
        for child in psutil.Process(self.process.pid).children():
            try:
                if any(name in part for part in child.cmdline()):
                    return child
            except psutil.Error:
                continue
        return None


def is_running(process: psutil.Process) -> bool:
    """True while the process runs; a zombie that nobody has reaped yet does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
