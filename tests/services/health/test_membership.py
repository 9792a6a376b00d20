"""Who is alive: real processes that beat, leave, freeze and die, with and without their broker."""

import time

import pytest

from tests.fixtures.servers import NatsServer
from tests.fixtures.wait import until
from tests.services.health.fleet import Beater, Beaters, Healths, Watched
from wire import subjects

PROCESS_START_S = 20.0
"""What a Python process may take to start on a loaded machine; not part of what is measured."""
TTL_S = subjects.REGISTRY_TTL_S


async def test_a_process_that_beats_appears_within_a_beat(
    healths: Healths, beaters: Beaters
) -> None:
    async with healths.run() as health:
        beater = beaters.start("decode")

        await until(lambda: health.state(beater) == "READY", within_s=PROCESS_START_S)
        beat_at_s = time.monotonic()
        await health.until_all_beat_again([beater], within_s=subjects.REGISTRY_BEAT_S + 0.5)

        assert time.monotonic() - beat_at_s <= subjects.REGISTRY_BEAT_S + 0.5
        assert health.logged_states(beater) == ["READY"]


@pytest.mark.fault
async def test_a_killed_process_is_down_when_its_lease_ends_and_a_frozen_one_comes_back(
    healths: Healths, beaters: Beaters
) -> None:
    async with healths.run() as health:
        killed, frozen, alive = (beaters.start("decode") for _ in range(3))
        await until(
            lambda: all(health.state(b) == "READY" for b in (killed, frozen, alive)),
            within_s=PROCESS_START_S,
        )

        killed.kill()
        frozen.pause()
        await until(lambda: health.state(killed) == "DOWN", within_s=TTL_S + 1)
        await until(lambda: health.state(frozen) == "DOWN", within_s=TTL_S + 1)
        frozen.resume()
        await until(lambda: health.state(frozen) == "READY", within_s=subjects.REGISTRY_BEAT_S + 1)

        assert health.logged_states(killed) == ["READY", "DOWN"]
        assert health.logged_states(frozen) == ["READY", "DOWN", "READY"]
        assert health.logged_states(alive) == ["READY"]


async def test_a_clean_stop_is_seen_at_once(healths: Healths, beaters: Beaters) -> None:
    async with healths.run() as health:
        beater = beaters.start("decode")
        await until(lambda: health.state(beater) == "READY", within_s=PROCESS_START_S)

        beater.stop()

        await until(lambda: health.state(beater) == "DOWN", within_s=0.5)


async def lose_the_broker(
    nats: NatsServer, watching: list[Watched], beaters: Beaters
) -> tuple[Beater, list[Beater], float]:
    """Kills NATS with its memory, kills a process meanwhile, and brings NATS back.

    Returns the killed process, the living ones, and when NATS was back.
    """
    killed, *living = (beaters.start("decode") for _ in range(3))
    for health in watching:
        await until(
            lambda health=health: all(health.state(b) == "READY" for b in (killed, *living)),
            within_s=PROCESS_START_S,
        )
    nats.kill()
    killed.kill()
    # Longer than the lease of the killed one: a clock alone must not take it out.
    await watching[0].until_time_has_passed(TTL_S + 2)
    nats.restart()
    back_at_s = time.monotonic()
    for health in watching:
        await health.until_all_beat_again(living, within_s=5.0)
    return killed, living, back_at_s


def assert_never_down(health: Watched, beaters: list[Beater]) -> None:
    """The invariant: nobody who beats was ever taken out."""
    for beater in beaters:
        assert health.logged_states(beater) == ["READY"], "a living process was taken out"


@pytest.mark.fault
async def test_losing_the_broker_takes_out_only_those_who_do_not_beat_again(
    healths: Healths, beaters: Beaters, nats_server: NatsServer
) -> None:
    async with (
        healths.run() as health,
        healths.run(mutant="broker_loss_empties_the_table") as mutant,
    ):
        killed, living, back_at_s = await lose_the_broker(nats_server, [health, mutant], beaters)
        was_out_meanwhile = health.logged_states(killed) != ["READY"]
        await until(lambda: health.state(killed) == "DOWN", within_s=2 * TTL_S + 1)
        down_after_s = time.monotonic() - back_at_s

        assert not was_out_meanwhile
        assert TTL_S < down_after_s <= 2 * TTL_S + 1
        assert_never_down(health, living)
        with pytest.raises(AssertionError, match="a living process was taken out"):
            assert_never_down(mutant, living)


@pytest.mark.fault
async def test_a_broker_that_stood_still_takes_nobody_out(
    healths: Healths, beaters: Beaters, nats_server: NatsServer
) -> None:
    async with (
        healths.run() as health,
        healths.run(mutant="ended_leases_are_always_believed") as mutant,
    ):
        living = [beaters.start("decode") for _ in range(3)]
        for each in (health, mutant):
            await until(
                lambda each=each: all(each.state(b) == "READY" for b in living),
                within_s=PROCESS_START_S,
            )

        # Every lease ends while it stands still, and it says so when it goes on.
        nats_server.pause()
        await health.until_time_has_passed(TTL_S + 2)
        nats_server.pause_ends()
        for each in (health, mutant):
            await each.until_all_beat_again(living, within_s=8.0)

        assert_never_down(health, living)
        with pytest.raises(AssertionError, match="a living process was taken out"):
            assert_never_down(mutant, living)


@pytest.mark.fault
async def test_health_waits_for_its_broker_and_then_serves(
    healths: Healths, beaters: Beaters, nats_server: NatsServer
) -> None:
    beater = beaters.start("decode")
    nats_server.kill()
    try:
        process = healths.start_only()
        process.until_logged("ConnectionRefusedError", within_s=PROCESS_START_S)
    finally:
        nats_server.restart()

    process.wait_ready()

    assert process.stop(within_s=5.0) == 0
    assert beater.exit_code is None
