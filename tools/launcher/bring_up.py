"""Waits until a started stack serves, shows what turns ready, and names what keeps dying.

The stack serves when every process is ready by its own word, health's route table has the model
READY, and the gateway answers 200 on /readyz.
"""

import asyncio
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from launcher.processes import Plan, Process
from launcher.progress import Progress
from launcher.ready import ReadyPids
from launcher.supervise import Status, Supervisor
from millrace.v1 import fleet_pb2, fleet_pb2_grpc
from wire import grpc_edge

WITHIN_S = 300.0
"""Two engines on two busy cores took up to 117 s each."""
POLL_S = 0.2
PROBE_TIMEOUT_S = 2.0
DEATHS_SHOWN = 3
"""From this many deaths on a process's last lines are shown: it will not come up by itself."""
ROUTES, SERVING = "routes", "front door"


class StackFailed(RuntimeError):
    """The stack does not serve; the message names the culprits and shows their last lines."""


@dataclass
class Board:
    """What is known of the stack that is coming up."""

    ready: list[str] = field(default_factory=list)
    statuses: dict[str, Status] = field(default_factory=dict)
    deaths: Counter[str] = field(default_factory=Counter)

    def update(self, statuses: dict[str, Status]) -> None:
        """Counts every disappearance of a pid as a death."""
        for name, before in self.statuses.items():
            now = statuses.get(name)
            if before.pid is not None and (now is None or now.pid != before.pid):
                self.deaths[name] += 1
        self.statuses = statuses


async def until_serving(
    plan: Plan,
    processes: Sequence[Process],
    supervisor: Supervisor,
    progress: Progress,
    beside: Sequence[asyncio.Task[Any]],
) -> None:
    """Returns when the whole stack serves; a task `beside` it that fails ends it with its error.

    Raises StackFailed or SupervisorGone.
    """
    wanted = [process.name for process in processes] + [ROUTES, SERVING]
    await _until(plan, processes, supervisor, progress, wanted, beside)


async def until_ready(
    plan: Plan, processes: Sequence[Process], supervisor: Supervisor, progress: Progress
) -> None:
    """Returns when these processes are ready by their own word. Raises as `until_serving`."""
    wanted = [process.name for process in processes]
    await _until(plan, processes, supervisor, progress, wanted)


async def _until(
    plan: Plan,
    processes: Sequence[Process],
    supervisor: Supervisor,
    progress: Progress,
    wanted: Sequence[str],
    beside: Sequence[asyncio.Task[Any]] = (),
) -> None:
    board, ready = Board(), ReadyPids()
    following = [asyncio.create_task(ready.follow(plan.nats.url))]
    if ROUTES in wanted:
        following.append(asyncio.create_task(_follow_routes(plan, board, progress)))
    try:
        async with asyncio.timeout(WITHIN_S):
            while not set(wanted) <= set(board.ready):
                board.update(await asyncio.to_thread(supervisor.statuses))
                await _look_at_processes(processes, board, ready, progress)
                if SERVING in wanted and ROUTES in board.ready and SERVING not in board.ready:
                    await _look_at_gateway(plan, board, progress)
                _show_dying(plan, board, progress)
                for task in (*following, *beside):
                    if task.done():
                        task.result()
                await asyncio.sleep(POLL_S)
    except TimeoutError as error:
        raise StackFailed(_verdict(plan, board, wanted)) from error
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)


async def _look_at_processes(
    processes: Sequence[Process], board: Board, ready: ReadyPids, progress: Progress
) -> None:
    for process in processes:
        status = board.statuses.get(process.name)
        if process.name in board.ready or status is None or status.pid is None:
            continue
        if process.probe is None:
            is_ready = status.pid in ready
        else:
            is_ready = await asyncio.to_thread(process.probe)
        if is_ready:
            board.ready.append(process.name)
            progress.ready(process.name)


async def _follow_routes(plan: Plan, board: Board, progress: Progress) -> None:
    """Notes when health's route table has the model READY."""
    async with grpc_edge.channel(plan.address("health.grpc")) as channel:
        fleet = fleet_pb2_grpc.FleetStub(channel)

        def watch() -> grpc.aio.UnaryStreamCall[Any, fleet_pb2.RouteTable]:
            return fleet.WatchRoutes(fleet_pb2.WatchRoutesRequest(follower="launcher"))

        async for table in grpc_edge.follow("routes", watch):
            states = {
                deployment.state
                for deployment in table.deployments
                if deployment.model == plan.shape.model
            }
            if fleet_pb2.DEPLOYMENT_STATE_READY in states:
                board.ready.append(ROUTES)
                progress.ready(ROUTES)
                return


async def _look_at_gateway(plan: Plan, board: Board, progress: Progress) -> None:
    url = f"http://{plan.address('gateway.http')}/readyz"
    if await asyncio.to_thread(_answers_200, url):
        board.ready.append(SERVING)
        progress.ready(SERVING)


def _answers_200(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=PROBE_TIMEOUT_S) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _show_dying(plan: Plan, board: Board, progress: Progress) -> None:
    for name, deaths in list(board.deaths.items()):
        if deaths >= DEATHS_SHOWN and name not in board.ready:
            board.deaths[name] = -1_000_000  # shown once
            progress.problem(
                f"  {name} has died {deaths} times; the end of {plan.run.log(name)}:\n"
                f"{_indent(plan.run.log_tail(name))}"
            )


def _verdict(plan: Plan, board: Board, wanted: Sequence[str]) -> str:
    missing = [name for name in wanted if name not in board.ready]
    lines = [f"not ready within {WITHIN_S:.0f} s: {', '.join(missing)}"]
    for name in missing:
        if name in board.statuses:
            state = board.statuses[name].state
            lines.append(f"{name} is {state}; the end of {plan.run.log(name)}:")
            lines.append(_indent(plan.run.log_tail(name)))
    return "\n".join(lines)


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
