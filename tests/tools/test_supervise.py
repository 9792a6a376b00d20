"""NATS and Postgres under the real supervisor: what dies comes back, `down` leaves nothing."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from supervisor.states import ProcessStates

from launcher import bring_up, marks, ports, supervise
from launcher.bring_up import StackFailed
from launcher.down import bring_down
from launcher.processes import Plan, Process, Shape
from launcher.progress import Progress
from launcher.runenv import MARK, RunDir
from launcher.supervisord import StackProcess
from launcher.up import start_stack, supervisor_of
from tests.fixtures.wait import until_sync

pytestmark = pytest.mark.fault

ROOT = Path(__file__).resolve().parents[2]
SERVERS = ("nats", "postgres")
NO_PROCESS_LEFT: list[int] = []


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDir]:
    """A run folder; what is left in it is ended after the test."""
    folder = RunDir.at(tmp_path / "run")
    yield folder
    bring_down(folder)


@pytest.fixture
def plan(run: RunDir) -> Plan:
    """The two servers, running and ready."""
    return _start(run)


@pytest.mark.fault
@pytest.mark.parametrize("name", SERVERS)
def test_a_killed_process_is_started_again(plan: Plan, name: str) -> None:
    before = supervisor_of(plan).statuses()[name].pid
    assert before is not None

    os.kill(before, signal.SIGKILL)

    probe = {"nats": plan.nats.is_ready, "postgres": plan.postgres.is_ready}[name]
    until_sync(lambda: _pid(plan, name) not in (None, before), within_s=10)
    until_sync(probe, within_s=10)


def test_down_stops_everything_in_order(plan: Plan) -> None:
    done = _command("down", plan.run)

    assert done.returncode == 0, done.stderr
    assert "all processes have stopped" in done.stdout
    _assert_nothing_left(plan)
    assert "database system is shut down" in plan.run.log_tail("postgres"), "Postgres was killed"


@pytest.mark.fault
def test_down_leaves_nothing_after_the_supervisor_was_killed(plan: Plan) -> None:
    pid = supervise.running_pid(plan.run)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until_sync(lambda: not marks.carries_mark(pid, plan.run.root))
    assert not supervise.stop(plan.run), "stopped by a supervisor that is dead"
    assert plan.nats.is_ready(), "the servers were to be orphans"

    done = _command("down", plan.run)

    assert done.returncode == 0, done.stderr
    _assert_nothing_left(plan)


def test_down_may_be_repeated(plan: Plan) -> None:
    assert _command("down", plan.run).returncode == 0

    again = _command("down", plan.run)

    assert again.returncode == 0
    assert "nothing was running" in again.stdout


def test_a_second_up_names_the_first_and_leaves_it_alone(plan: Plan) -> None:
    before = {name: _pid(plan, name) for name in SERVERS}

    done = _command("up", plan.run, "--detach")

    assert done.returncode == 1
    assert f"supervisord pid {supervise.running_pid(plan.run)}" in done.stderr
    assert f":{plan.ports['gateway.http']}" in done.stderr
    assert {name: _pid(plan, name) for name in SERVERS} == before


@pytest.mark.fault
def test_a_start_sweeps_up_what_a_crash_left(
    plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    orphans = [_pid(plan, name) for name in SERVERS]
    pid = supervise.running_pid(plan.run)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until_sync(lambda: not marks.carries_mark(pid, plan.run.root))

    again = _start(plan.run)

    assert "swept up" in capsys.readouterr().out
    assert not any(orphan in marks.marked_pids(plan.run.root) for orphan in orphans)
    assert again.ports == plan.ports, "the addresses changed over a restart"


def test_processes_of_another_run_folder_are_left_alone(plan: Plan, tmp_path: Path) -> None:
    other = RunDir.at(tmp_path / "run-2")
    stranger = subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: str(other.root)})

    try:
        bring_down(plan.run)

        assert stranger.poll() is None
        assert marks.marked_pids(other.root) == [stranger.pid]
        assert marks.sweep(other.root) == 1
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.fault
def test_what_a_dead_process_leaves_behind_is_killed_before_it_starts_again(run: RunDir) -> None:
    family = _process(run, "family", "sleep 600 & echo $! > $0.child; sleep 600")
    supervisor = _supervisor(run)
    supervisor.start([family])
    child_file = run.root / "family.child"
    child = int(until_sync(lambda: child_file.exists() and child_file.read_text().strip()))
    until_sync(lambda: supervisor.statuses()["family"].state == "RUNNING")
    parent = supervisor.statuses()["family"].pid
    assert parent is not None
    assert psutil.pid_exists(child)

    os.kill(parent, signal.SIGKILL)

    until_sync(lambda: supervisor.statuses()["family"].pid not in (None, parent))
    until_sync(lambda: not marks.carries_mark(child, run.root), within_s=3)


@pytest.mark.parametrize(
    ("kind", "longest_wait_s"), [(StackProcess, 2), (StackProcess.__base__, 10)]
)
def test_the_wait_between_failing_starts_stops_growing(
    kind: Callable[[object], StackProcess], longest_wait_s: int
) -> None:
    process = kind(SimpleNamespace(name="failing"))

    for _ in range(10):
        process.change_state(ProcessStates.STARTING)
        process.change_state(ProcessStates.BACKOFF)

    # The second case is the stock class: it shows what this is here for.
    assert process.delay - time.time() == pytest.approx(longest_wait_s, abs=0.5)


async def test_a_process_that_keeps_dying_is_shown_with_its_last_words(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bring_up, "WITHIN_S", 9.0)
    plan = await asyncio.to_thread(_start, run)
    bring_down(run)
    broken = _process(run, "broken", "echo the last words; exit 3")
    supervisor_of(plan).start([broken])

    with pytest.raises(StackFailed) as failed:
        await bring_up.until_ready(plan, [broken], supervisor_of(plan), Progress())

    assert "not ready within 9 s: broken" in str(failed.value)
    assert "the last words" in str(failed.value)
    assert "broken has died 3 times" in capsys.readouterr().err


def test_percent_signs_and_spaces_reach_the_process_unchanged(run: RunDir) -> None:
    odd = _process(run, "odd", 'printf %s "$ODD" > $0.seen; sleep 600', ODD="50% of, a = b (c)")

    _supervisor(run).start([odd])

    seen = run.root / "odd.seen"
    until_sync(lambda: seen.exists() and seen.read_text() == "50% of, a = b (c)")


def test_a_password_is_asked_for_by_the_supervisor(plan: Plan) -> None:
    stranger = replace(supervisor_of(plan), password="guess")

    with pytest.raises(supervise.SupervisorGone, match="401"):
        stranger.statuses()


def _start(run: RunDir) -> Plan:
    plan, chosen = start_stack(run, Shape(), None, Progress(), only=SERVERS)
    ready: dict[str, Callable[[], bool]] = {p.name: p.probe for p in chosen if p.probe is not None}
    assert set(ready) == set(SERVERS)
    for probe in ready.values():
        until_sync(probe, within_s=20)
    return plan


def _supervisor(run: RunDir) -> supervise.Supervisor:
    return supervise.Supervisor(run, ports.free_port(), "password")


def _process(run: RunDir, name: str, script: str, **env: str) -> Process:
    command = ("bash", "-c", script, str(run.root / name))
    return Process(name, name, command, {**env, MARK: str(run.root)})


def _pid(plan: Plan, name: str) -> int | None:
    return supervisor_of(plan).statuses()[name].pid


def _command(name: str, run: RunDir, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "tools" / name), "--run-dir", str(run.root), *options],
        capture_output=True,
        text=True,
        check=False,
    )


def _assert_nothing_left(plan: Plan) -> None:
    assert marks.marked_pids(plan.run.root) == NO_PROCESS_LEFT
    assert [name for name, port in plan.ports.items() if not ports.is_free(port)] == []
