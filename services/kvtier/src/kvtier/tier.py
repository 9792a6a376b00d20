"""Keeps master and node running, and a dead master dead until its leases have ended.

One turn of `run`: wait out the quarantine, write the mark, start the master, then the node, watch
both until the master is gone, close the mark. The node would remount itself with a new master; it
is replaced nevertheless: what it holds is lost with the master's metadata anyway, and a new process
has new addresses, so that a writer that was stalled across the restart reaches nothing.
"""

import asyncio
import time
from asyncio.subprocess import Process
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import aiohttp

import observe
from kvtier import children, metrics, quarantine, stats, store
from kvtier.errors import MasterSilent
from kvtier.node import MOUNTED
from kvtier.settings import Settings
from kvtier.stats import MasterStats
from wire import backoff

log = observe.get_logger(__name__)

POLL_S = 2.0
START_POLL_S = 0.1
MOUNT_LIMIT_S = 12.0
MOUNT_S_PER_GIB = 1.0
"""A node that has lent nothing so long after its start is killed; large memory may be pinned."""
SILENT_LIMIT_S = 15.0
"""A master that answers nothing for this long is killed; a loaded machine may take seconds."""


class TierState(Enum):
    """What a worker may expect of the tier."""

    READY = "ready"
    QUARANTINED = "quarantined"
    DOWN = "down"


@dataclass(frozen=True)
class TierStatus:
    """What kvtier knows at one moment; the figures are None without a master that answers."""

    state: TierState
    master: MasterStats | None
    master_restarts: int
    quarantine_left_s: float


class Tier:
    """The tier of one cluster."""

    def __init__(self, settings: Settings, session: aiohttp.ClientSession) -> None:
        self._settings = settings
        self._session = session
        self._state = TierState.DOWN
        self._mark: quarantine.MasterMark | None = None
        self._master_restarts = 0
        self._masters_started = 0
        self._has_master = asyncio.Event()
        self._has_node = False
        self._on_change: Callable[[], None] = lambda: None
        host = "127.0.0.1" if settings.host == "0.0.0.0" else settings.host
        self._metrics_url = f"http://{host}:{settings.master_metrics_port}/metrics"

    @property
    def state(self) -> TierState:
        """The state without asking the master."""
        return self._state

    def tell_changes(self, on_change: Callable[[], None]) -> None:
        """Calls back after every change of state."""
        self._on_change = on_change

    async def status(self) -> TierStatus:
        """Asks the master now."""
        left_s, figures = 0.0, None
        if self._state is TierState.QUARANTINED:
            left_s = quarantine.left_s(self._mark, store.boot_clock_s())
        elif self._has_master.is_set():
            try:
                figures = await stats.fetch(self._session, self._metrics_url)
            except MasterSilent as error:
                log.warning("master_silent", error=str(error))
        return TierStatus(self._state, figures, self._master_restarts, left_s)

    async def run(self) -> None:
        """Serves until cancelled; then stops node and master and closes the mark."""
        folder = self._settings.state_dir
        mark = store.read_mark(folder, self._settings.lease_s)
        if mark is not None:
            self._close_mark(mark)
        while True:
            await self._wait_out_quarantine()
            mark = quarantine.MasterMark(self._settings.lease_s, store.boot_id(), None)
            store.write_mark(folder, mark)
            try:
                await self._run_master()
            finally:
                self._close_mark(mark)

    def _close_mark(self, mark: quarantine.MasterMark) -> None:
        self._mark = quarantine.found_dead(mark, store.boot_id(), store.boot_clock_s())
        store.write_mark(self._settings.state_dir, self._mark)

    async def _wait_out_quarantine(self) -> None:
        left_s = quarantine.left_s(self._mark, store.boot_clock_s())
        if left_s <= 0:
            return
        metrics.QUARANTINES.inc()
        log.warning("quarantine_begins", left_s=round(left_s, 2))
        self._enter(TierState.QUARANTINED)
        await asyncio.sleep(left_s)
        self._enter(TierState.DOWN)

    async def _run_master(self) -> None:
        master = await children.start_master(self._settings)
        if self._masters_started:
            self._master_restarts += 1
            metrics.MASTER_RESTARTS.inc()
        self._masters_started += 1
        log.info("master_started", master_pid=master.pid, restarts=self._master_restarts)
        try:
            async with asyncio.TaskGroup() as tasks:
                watching = [
                    tasks.create_task(self._watch(master), name="watch"),
                    tasks.create_task(self._keep_node(), name="node"),
                ]
                code = await master.wait()
                log.error("master_died", exit_code=code)
                self._has_master.clear()
                self._settle()
                for task in watching:
                    task.cancel()
        finally:
            self._has_master.clear()
            self._settle()
            await children.stop(master)

    async def _watch(self, master: Process) -> None:
        """Follows the master's figures; kills a master that has hung."""
        answered_s = time.monotonic()
        while True:
            try:
                figures = await stats.fetch(self._session, self._metrics_url)
            except MasterSilent as error:
                if self._has_master.is_set():
                    log.warning("master_silent", error=str(error))
                self._has_master.clear()
                self._settle()
                if time.monotonic() - answered_s > SILENT_LIMIT_S:
                    log.error("master_hung", silent_s=SILENT_LIMIT_S, error=str(error))
                    master.kill()
                    return
            else:
                answered_s = time.monotonic()
                self._has_master.set()
                metrics.show_stats(figures)
                self._settle()
            await asyncio.sleep(POLL_S if self._has_master.is_set() else START_POLL_S)

    async def _keep_node(self) -> None:
        """Runs the node for as long as the master lives; starts it again when it dies."""
        delays = backoff.delays_s()
        await self._has_master.wait()
        while True:
            node = await children.start_node(self._settings)
            try:
                gib = self._settings.segment_mb / 1024
                limit_s = MOUNT_LIMIT_S + MOUNT_S_PER_GIB * gib
                self._has_node = await _has_mounted(node, limit_s)
                if self._has_node:
                    log.info("node_mounted", node_pid=node.pid, mb=self._settings.segment_mb)
                    delays = backoff.delays_s()
                    self._settle()
                code = await node.wait()
            finally:
                self._has_node = False
                if not self._has_master.is_set():
                    node.kill()  # without a master it cannot give its memory back in order
                await children.stop(node)
            log.error("node_died", exit_code=code)
            metrics.NODE_RESTARTS.inc()
            self._settle()
            await asyncio.sleep(next(delays))

    def _settle(self) -> None:
        is_ready = self._has_master.is_set() and self._has_node
        self._enter(TierState.READY if is_ready else TierState.DOWN)

    def _enter(self, state: TierState) -> None:
        if state is self._state:
            return
        log.info("tier_state", state=state.value, was=self._state.value)
        self._state = state
        metrics.show_state(state.value)
        self._on_change()


async def _has_mounted(node: Process, limit_s: float) -> bool:
    """Waits until the node lends its memory; False when it died first. Kills one that hangs."""
    assert node.stdout is not None
    try:
        async with asyncio.timeout(limit_s):
            return await node.stdout.readline() == MOUNTED
    except TimeoutError:
        log.error("node_hung", node_pid=node.pid, silent_s=round(limit_s, 1))
        node.kill()
        return False
