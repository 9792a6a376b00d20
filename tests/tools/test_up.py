"""`./tools/up` and `./tools/down` in real life: the whole stack, and every way it can end."""

import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from launcher import marks, ports, supervise
from launcher.down import bring_down
from launcher.processes import Shape, port_names
from launcher.runenv import RunDir
from tests.fixtures.stack import Stack
from tests.fixtures.wait import until_sync

ROOT = Path(__file__).resolve().parents[2]
NAMES = {"nats", "postgres", "kvtier", "health", "billing", "prefill-1", "decode-1"}
NAMES |= {"router", "gateway"}
ENDS_WITHIN_S = 60.0


@pytest.fixture
def foreground(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """`./tools/up` in the foreground of a session of its own, as soon as it has started NATS."""
    run = RunDir.at(tmp_path / "run")
    with (tmp_path / "output").open("w") as out:
        up = subprocess.Popen(
            [str(ROOT / "tools" / "up"), "--run-dir", str(run.root)],
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    try:
        until_sync(lambda: "nats         ready" in _output(tmp_path), within_s=60)
        until_sync(lambda: len(marks.marked_pids(run.root)) >= len(NAMES) + 1, within_s=30)
        yield up
    finally:
        up.kill()
        up.wait()
        bring_down(run)


@pytest.mark.engine
def test_ctrl_c_takes_the_stack_down(foreground: subprocess.Popen[str], tmp_path: Path) -> None:
    os.killpg(foreground.pid, signal.SIGINT)

    assert foreground.wait(ENDS_WITHIN_S) == 0, _output(tmp_path)
    _assert_nothing_left(tmp_path)


@pytest.mark.engine
@pytest.mark.fault
def test_down_ends_a_stack_whose_up_was_killed(
    foreground: subprocess.Popen[str], tmp_path: Path
) -> None:
    run = RunDir(tmp_path / "run")
    foreground.kill()
    foreground.wait()
    assert supervise.running_pid(run) is not None, "the stack was to outlive `up`"

    done = _down(run.root)

    assert done.returncode == 0, done.stderr
    _assert_nothing_left(tmp_path)


@pytest.mark.engine
@pytest.mark.fault
def test_down_ends_engines_that_lost_their_supervisor(
    foreground: subprocess.Popen[str], tmp_path: Path
) -> None:
    run = RunDir(tmp_path / "run")
    supervisor = supervise.running_pid(run)
    assert supervisor is not None
    foreground.kill()
    foreground.wait()
    os.kill(supervisor, signal.SIGKILL)

    done = _down(run.root)

    assert done.returncode == 0, done.stderr
    assert "had lost their supervisor" in done.stdout
    _assert_nothing_left(tmp_path)


def test_up_starts_every_process_of_the_list(stack: Stack) -> None:
    assert set(stack.processes()) == NAMES


def test_the_keys_and_addresses_are_private_and_work(stack: Stack) -> None:
    for path in (stack.run.env, stack.run.internal_env, stack.run.secrets):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    models = httpx.get(
        f"{stack.base_url}/models", headers={"Authorization": f"Bearer {stack.api_key}"}
    )
    teams = httpx.get(
        f"{stack.admin_url}/admin/v1/teams", headers={"Authorization": f"Bearer {stack.admin_key}"}
    )

    assert models.status_code == 200
    assert [model["id"] for model in models.json()["data"]] == [stack.internal["MODEL_NAME"]]
    assert [team["name"] for team in teams.json()["data"]] == ["demo"]


def test_metrics_of_every_service_answer(stack: Stack) -> None:
    urls = {k: v for k, v in stack.internal.items() if k.endswith("_METRICS_URL")}

    assert len(urls) == len(NAMES) - 2, "all but the servers"
    for name, url in urls.items():
        assert httpx.get(url).status_code == 200, name


def test_a_second_up_is_refused_while_the_stack_serves(stack: Stack) -> None:
    done = subprocess.run(
        [str(ROOT / "tools" / "up"), "--detach", "--run-dir", str(stack.run.root)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert stack.url in done.stderr


def test_every_process_of_the_engines_carries_the_mark(stack: Stack) -> None:
    engines = {name: pid for name, pid in stack.processes().items() if name[-2:] == "-1"}
    marked = set(stack.pids())

    for name, pid in engines.items():
        family = {pid, *_descendants(pid)}
        assert len(family) >= 3, f"{name} has no engine process of its own"
        assert family <= marked, "`down` could miss one that lost its parent"


def _descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(c) for c in children] + [d for c in children for d in _descendants(int(c))]


def _output(tmp_path: Path) -> str:
    return (tmp_path / "output").read_text()


def _down(run_dir: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "tools" / "down"), "--run-dir", str(run_dir)],
        capture_output=True,
        text=True,
        check=False,
    )


def _assert_nothing_left(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    assert marks.marked_pids(run.root) == []
    known = run.known_ports()
    assert set(known) == set(port_names(Shape()))
    assert [name for name, port in known.items() if not ports.is_free(port)] == []
