"""The tier serves, and stays correct when its master, its node or kvtier itself dies."""

import json
import time

import httpx
import psutil
import pytest

from tests.fixtures.wait import until_sync
from tests.services.kvtier.conftest import MakeTier
from tests.services.kvtier.tier import SEGMENT_MB, TierUnderTest, is_running

MASTER, NODE = "mooncake_master", "kvtier.node"
CLIENT_FINDS_MASTER_S = 10.0


def test_objects_go_in_and_come_out_and_the_stats_grow(make_tier: MakeTier) -> None:
    tier = make_tier()
    tier.start()
    tier.process.wait_ready()
    before = tier.stats()
    client = tier.client()

    codes = client.put(0, 8)
    outcome = client.get(0, 8)
    after = tier.stats()

    assert codes == {"0": 8}
    assert (outcome["ok"], outcome["wrong"]) == (8, 0)
    assert before is not None
    assert after is not None
    assert before.capacity_bytes == after.capacity_bytes == SEGMENT_MB << 20
    assert after.used_bytes - before.used_bytes == 8 << 20
    assert after.objects - before.objects == 8
    assert after.put_requests - before.put_requests == 8
    assert after.get_requests - before.get_requests == 8
    url = f"http://127.0.0.1:{tier.env['OBSERVE_METRICS_PORT']}/metrics"
    until_sync(lambda: "millrace_kvtier_objects 8.0" in httpx.get(url).text, within_s=5)
    assert 'millrace_kvtier_state{state="ready"} 1.0' in httpx.get(url).text


def test_the_workers_file_depends_on_the_settings_alone(make_tier: MakeTier) -> None:
    tier = make_tier()
    tier.start()
    tier.until_state("READY")
    first = (tier.folder / "mooncake.json").read_text()
    tier.process.stop()
    tier.start()
    until_sync(lambda: tier.state() != "")

    config = json.loads((tier.folder / "mooncake.json").read_text())

    assert json.dumps(config, indent=2) + "\n" == first
    assert config["mode"] == "embedded"
    assert config["master_server_address"] == f"127.0.0.1:{tier.env['KVTIER_MASTER_PORT']}"


def test_a_clean_stop_leaves_nothing_running(make_tier: MakeTier) -> None:
    tier = make_tier()
    tier.start()
    tier.until_state("READY")
    children = [tier.child(MASTER), tier.child(NODE)]

    began_s = time.monotonic()
    exit_code = tier.process.stop()

    assert exit_code == 0
    assert time.monotonic() - began_s < 5
    assert not any(is_running(child) for child in children)


def lose_the_master(tier: TierUnderTest) -> float:
    """Kills the master; the seconds until one runs again. Asserts that the quarantine was kept."""
    tier.child(MASTER).kill()
    died_s = time.monotonic()
    tier.until_state("QUARANTINED", within_s=2)
    quarantined = tier.stats()
    assert quarantined is not None
    assert 0 < quarantined.quarantine_left_s <= tier.lease_s + 0.5
    until_sync(lambda: tier.find_child(MASTER), within_s=tier.lease_s + 5, what="a new master")
    away_s = time.monotonic() - died_s
    assert away_s >= tier.lease_s, f"a new master after {away_s:.2f} s of {tier.lease_s} s"
    return away_s


@pytest.mark.fault
def test_a_dead_master_stays_dead_for_one_lease_and_then_the_tier_works_again(
    make_tier: MakeTier,
) -> None:
    tier, mutant = make_tier(), make_tier()
    tier.start()
    mutant.start(mutant="no_quarantine")
    tier.until_state("READY")
    mutant.until_state("READY")
    client = tier.client()
    client.put(0, 4)
    node = tier.child(NODE)

    lose_the_master(tier)
    tier.until_state("READY")
    back = tier.stats()

    assert back is not None
    assert back.master_restarts == 1
    assert back.objects == 0
    assert not is_running(node), "the node is replaced with its master"
    until_sync(lambda: client.put(10, 1) == {"0": 1}, within_s=CLIENT_FINDS_MASTER_S)
    assert client.put(11, 3) == {"0": 3}
    outcome = client.get(10, 4)
    assert (outcome["ok"], outcome["wrong"]) == (4, 0)
    with pytest.raises(AssertionError):
        lose_the_master(mutant)


def read_across_a_master_restart(tier: TierUnderTest) -> dict[str, float]:
    """A reader stands still in the middle of a batch; the master dies; others write; it reads on.

    Part of the objects lies in the memory of a worker-like client, which kvtier does not replace.
    """
    owner, reader, writer = tier.client(segment_mb=SEGMENT_MB), tier.client(), tier.client()
    assert owner.put(0, 40) == {"0": 40}
    before = tier.stats()
    assert before is not None

    # The reader has its leases and waits for the bytes of an owner that stands still.
    owner.pause()
    reader.begin_get(0, 40)
    asked = before.get_requests + 40
    until_sync(lambda: (stats := tier.stats()) is not None and stats.get_requests >= asked)
    reader.pause()
    owner.resume()
    tier.child(MASTER).kill()
    until_sync(lambda: tier.state() != "READY")
    tier.until_state("READY")
    until_sync(
        lambda: (s := tier.stats()) is not None and s.capacity_bytes >= 2 * SEGMENT_MB << 20,
        within_s=CLIENT_FINDS_MASTER_S,
        what="the owner lends its memory to the new master",
    )
    until_sync(lambda: writer.put(1000, 1) == {"0": 1}, within_s=CLIENT_FINDS_MASTER_S)
    writer.put(1001, 79)
    reader.resume()
    return reader.end_get()


@pytest.mark.fault
def test_a_reader_older_than_a_master_restart_never_gets_other_bytes(make_tier: MakeTier) -> None:
    tier, mutant = make_tier(lease_s=15), make_tier(lease_s=15)
    tier.start()
    tier.until_state("READY")
    outcome = read_across_a_master_restart(tier)
    tier.process.stop()
    mutant.start(mutant="no_quarantine")
    mutant.until_state("READY")
    harmed = read_across_a_master_restart(mutant)

    assert outcome["wrong"] == 0, outcome
    assert outcome["failed"] > 0, outcome
    assert harmed["wrong"] > 0, harmed


@pytest.mark.fault
def test_after_sigkill_of_kvtier_no_master_is_left_and_the_next_one_keeps_the_quarantine(
    make_tier: MakeTier,
) -> None:
    tier = make_tier()
    tier.start()
    tier.until_state("READY")
    children = [tier.child(MASTER), tier.child(NODE)]

    tier.kill_only_kvtier()
    killed_s = time.monotonic()
    until_sync(lambda: not any(is_running(child) for child in children), within_s=1)
    tier.start()
    tier.until_state("QUARANTINED", within_s=10)
    until_sync(lambda: tier.find_child(MASTER), within_s=tier.lease_s + 5, what="a new master")

    assert time.monotonic() - killed_s >= tier.lease_s
    tier.until_state("READY")


@pytest.mark.fault
def test_a_kvtier_that_stood_still_before_it_was_killed_shortens_no_quarantine(
    make_tier: MakeTier,
) -> None:
    tier = make_tier()
    tier.start()
    tier.until_state("READY")
    master = tier.child(MASTER)

    # Its master serves on meanwhile, and gives leases that no touched file tells of.
    tier.process.pause()
    began_s = time.monotonic()
    until_sync(lambda: time.monotonic() - began_s > tier.lease_s, within_s=tier.lease_s + 2)
    assert is_running(master)
    tier.kill_only_kvtier()
    killed_s = time.monotonic()
    tier.start()
    until_sync(lambda: tier.find_child(MASTER), within_s=tier.lease_s + 15, what="a new master")

    assert time.monotonic() - killed_s >= tier.lease_s


@pytest.mark.fault
def test_a_node_that_hangs_at_its_start_is_replaced(make_tier: MakeTier) -> None:
    tier = make_tier()
    tier.start(mutant="first_node_hangs")

    tier.until_state("READY")

    assert "node_hung" in tier.process.log()
    assert tier.client().put(0, 1) == {"0": 1}


@pytest.mark.fault
def test_a_dead_node_is_replaced_without_a_quarantine(make_tier: MakeTier) -> None:
    tier = make_tier(lease_s=60)
    tier.start()
    tier.until_state("READY")
    master, node = tier.child(MASTER), tier.child(NODE)

    node.kill()
    until_sync(lambda: tier.child(NODE).pid != node.pid)
    tier.until_state("READY", within_s=10)
    client = tier.client()

    assert is_running(master)
    # The dead node's memory is offered for the client TTL still; a put may land there and fail.
    until_sync(lambda: client.put(0, 1) == {"0": 1}, within_s=CLIENT_FINDS_MASTER_S)


@pytest.mark.fault
def test_a_second_kvtier_on_the_same_folder_waits_for_the_first(make_tier: MakeTier) -> None:
    tier = make_tier()
    tier.start()
    tier.until_state("READY")
    first = tier.process

    del tier.env["OBSERVE_METRICS_PORT"]  # the first one has it
    tier.start()
    tier.process.until_logged("state_folder_in_use", within_s=15)
    assert first.stop() == 0

    until_sync(lambda: tier.find_child(MASTER), within_s=tier.lease_s + 10, what="its own master")


@pytest.mark.fault
def test_an_idle_tier_costs_less_than_a_hundredth_of_a_core(make_tier: MakeTier) -> None:
    tier = make_tier()
    tier.start()
    tier.process.wait_ready()
    family = [psutil.Process(tier.process.pid), tier.child(MASTER), tier.child(NODE)]

    def used_s() -> float:
        return sum(times.user + times.system for times in (p.cpu_times() for p in family))

    began_s, began_used_s = time.monotonic(), used_s()
    until_sync(lambda: time.monotonic() - began_s >= 10, within_s=15)

    assert (used_s() - began_used_s) / (time.monotonic() - began_s) < 0.01
