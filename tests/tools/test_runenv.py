"""The run folder: secrets stay private, addresses stay the same over a restart."""

import stat
from pathlib import Path

import pytest

from launcher import ports
from launcher.processes import Shape, port_names
from launcher.runenv import RunDir, RunDirUnusable, read_env, write_env


def test_a_file_of_secrets_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.touch(mode=0o644)

    write_env(path, {"KEY": "a=b", "OTHER": ""})

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_env(path) == {"KEY": "a=b", "OTHER": ""}
    assert [entry.name for entry in tmp_path.iterdir()] == ["env"]


def test_secrets_outlive_a_stop(tmp_path: Path) -> None:
    run = RunDir.at(tmp_path)

    first = run.known_secrets()

    assert run.known_secrets() == first
    assert len(set(first.values())) == len(first)
    assert all(len(secret) >= 40 for secret in first.values())


def test_ports_stay_the_same_while_they_are_free(tmp_path: Path) -> None:
    run, names = RunDir.at(tmp_path), port_names(Shape())
    first = run.assign_ports(names, None)

    assert run.assign_ports(names, None) == first


def test_a_port_that_somebody_took_is_replaced(tmp_path: Path) -> None:
    run, names = RunDir.at(tmp_path), port_names(Shape())
    first = run.assign_ports(names, None)

    with ports.listening(first["nats"]):
        second = run.assign_ports(names, None)

    assert second["nats"] != first["nats"]
    assert len(set(second.values())) == len(names)
    assert {k: v for k, v in second.items() if k != "nats"} == {
        k: v for k, v in first.items() if k != "nats"
    }


def test_ports_are_counted_from_the_one_that_was_asked_for(tmp_path: Path) -> None:
    base = ports.free_port()

    assigned = RunDir.at(tmp_path).assign_ports(port_names(Shape()), base)

    assert assigned["gateway.http"] == base
    assert sorted(assigned.values()) == list(assigned.values())


def test_no_port_is_one_that_an_outgoing_connection_may_take() -> None:
    lowest = int(ports.EPHEMERAL_RANGE.read_text().split()[0])

    found = ports.free_ports(200)

    assert len(set(found)) == 200
    assert max(found) < lowest


def test_a_taken_port_is_not_free() -> None:
    port = ports.free_port()

    with ports.listening(port):
        assert not ports.is_free(port)
        assert ports.is_listening(port)
    assert ports.is_free(port)


def test_too_many_ports_are_refused() -> None:
    with pytest.raises(ports.NoFreePorts, match="expected 100 free ports"):
        ports.free_ports(100, base=65_500)


def test_a_folder_that_the_supervisor_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirUnusable, match="choose a path without them"):
        RunDir.at(tmp_path / 'quote"s')


def test_two_starts_at_once_are_refused(tmp_path: Path) -> None:
    run = RunDir.at(tmp_path)

    with run.lock(), pytest.raises(RunDirUnusable, match="another"), run.lock():
        pass
    with run.lock():
        pass
