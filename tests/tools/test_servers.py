"""The embedded servers keep their data over a crash and answer on their own port only."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import asyncpg
import nats
import psutil
import pytest

from launcher import ports, servers
from tests.fixtures.servers import NatsServer, PostgresServer
from tests.fixtures.wait import until_sync

ROOT = Path(__file__).resolve().parents[2]


def _dsn(url: str) -> str:
    return url.replace("postgresql+asyncpg", "postgresql")


@pytest.mark.fault
async def test_postgres_keeps_committed_rows_over_sigkill(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database("crash")
    connection = await asyncpg.connect(_dsn(url))
    await connection.execute("CREATE TABLE IF NOT EXISTS kept (id int); DELETE FROM kept")
    await connection.execute("INSERT INTO kept VALUES (7)")

    postgres_server.kill()
    await asyncio.to_thread(postgres_server.restart)

    connection.terminate()
    connection = await asyncpg.connect(_dsn(url))
    assert await connection.fetchval("SELECT id FROM kept") == 7
    await connection.close()


async def test_postgres_refuses_a_wrong_password(postgres_server: PostgresServer) -> None:
    url = f"postgresql://postgres:wrong@127.0.0.1:{postgres_server.port}/millrace"

    try:
        await asyncpg.connect(url)
    except asyncpg.InvalidPasswordError:
        return
    raise AssertionError("a wrong password was accepted")


async def test_nats_keeps_acknowledged_messages_over_sigkill(nats_server: NatsServer) -> None:
    nc = await nats.connect(nats_server.url)
    js = nc.jetstream()
    await js.add_stream(name="KEPT", subjects=["kept"])
    await js.publish("kept", b"one")
    await nc.close()  # nats-py leaks the transport of a connection that breaks

    nats_server.kill()
    await asyncio.to_thread(nats_server.restart)

    nc = await nats.connect(nats_server.url)
    info = await nc.jetstream().stream_info("KEPT")
    assert info.state.messages == 1
    await nc.jetstream().delete_stream("KEPT")
    await nc.close()


def test_a_stranger_on_the_port_is_not_taken_for_our_nats(nats_server: NatsServer) -> None:
    class Renamed(servers.Nats):
        name = "another"

    assert servers.Nats(Path("/"), nats_server.port).is_ready()
    assert not Renamed(Path("/"), nats_server.port).is_ready()
    assert not servers.Nats(Path("/"), ports.free_port()).is_ready()


def test_servers_die_with_a_killed_test_run(tmp_path: Path) -> None:
    script = (
        "import sys, time\nfrom pathlib import Path\n"
        "from tests.fixtures.servers import NatsServer, PostgresServer\n"
        "root = Path(sys.argv[1])\n"
        "for name, kind in (('n', NatsServer), ('p', PostgresServer)):\n"
        "    (root / name).mkdir()\n    server = kind(root / name)\n    server.start()\n"
        "    print(server.pid, flush=True)\n"
        "print('up', flush=True)\ntime.sleep(60)\n"
    )
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tools'}"}
    owner = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=env
    )
    assert owner.stdout is not None
    pids = [int(line) for line in iter(owner.stdout.readline, "up\n")]
    assert len(pids) == 2

    owner.send_signal(signal.SIGKILL)
    owner.wait()

    until_sync(lambda: not any(_runs(pid) for pid in pids), within_s=10)
    owner.stdout.close()


def test_postgres_runs_as_another_user_below_a_closed_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    # The virtual environment lies below it too: its binaries and libraries, as hard links.
    package = servers._postgres_binary("postgres").parents[2]
    for folder in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(folder, home / folder.name, copy_function=os.link, symlinks=True)
    binaries = home / package.name / "pginstall" / "bin"
    monkeypatch.setattr(servers, "_postgres_binary", lambda name: binaries / name)

    server = PostgresServer(home)
    server.start()

    try:
        expected = servers.NOBODY_UID if os.geteuid() == 0 else os.geteuid()
        assert psutil.Process(server.pid).uids().effective == expected
        assert server.create_database("closed").endswith("/closed")
    finally:
        server.stop()


@pytest.mark.fault
def test_an_interrupted_initdb_is_done_again(tmp_path: Path) -> None:
    server = servers.Postgres(tmp_path / "pg", ports.free_port(), "password")
    server.prepare()
    (server.data / "PG_VERSION").unlink()
    (server.root / "initdb-unfinished").touch()

    server.prepare()

    assert (server.data / "PG_VERSION").exists()
    assert not (server.root / "initdb-unfinished").exists()


def _runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
