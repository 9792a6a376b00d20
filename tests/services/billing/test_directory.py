"""Gateways learn who may call: a snapshot, every change within a second, signs of life."""

import asyncio
import hashlib
import time
from functools import partial

import httpx
import pytest

from tests.fixtures.wait import ConditionNotMet, until
from tests.services.billing.follower import Follower, follow
from tests.services.billing.world import Billing, World

pytestmark = pytest.mark.fault

REVOKED_WITHIN_S = 1.0


async def test_a_snapshot_comes_first_and_then_every_change(world: World) -> None:
    billing = await world.start()
    team_id = await billing.create_team("acme")
    key = await billing.create_key(team_id, "ci")
    await billing.set_price("smollm2", "1", "2", "3")
    await billing.set_price("smollm2", "0.150", "0.05", "0.6")

    async with follow(billing.grpc_target) as follower:
        await until(lambda: len(follower.updates) > 0)
        snapshot = follower.updates[0]
        second_team = await billing.create_team("globex")
        await billing.set_price("smollm2", "0.2", "0.1", "0.7")
        await until(lambda: follower.prices["smollm2"].input_usd_per_mtok == "0.2")

    assert snapshot.is_snapshot
    assert [(team.team_id, team.name) for team in snapshot.teams] == [(team_id, "acme")]
    assert [(k.key_id, k.team_id, k.name) for k in snapshot.keys] == [
        (key["key_id"], team_id, "ci")
    ]
    assert snapshot.keys[0].sha256 == hashlib.sha256(key["key"].encode()).digest()
    assert [price.input_usd_per_mtok for price in snapshot.prices] == ["0.15"]
    assert set(follower.teams) == {team_id, second_team}
    assert [update.is_snapshot for update in follower.updates].count(True) == 1
    revisions = [update.revision for update in follower.updates]
    assert revisions == sorted(revisions)


async def test_a_silent_directory_gives_signs_of_life(world: World) -> None:
    billing = await world.start()

    async with follow(billing.grpc_target) as follower:
        await until(lambda: len(follower.updates) >= 3, within_s=6)

    gaps = [after - before for before, after in zip(follower.at_s, follower.at_s[1:], strict=False)]
    assert max(gaps) < 2.5
    assert not any(update.is_snapshot for update in follower.updates[1:])


async def test_a_missing_sign_of_life_would_be_noticed(world: World) -> None:
    billing = await world.start("no_sign_of_life")

    async with follow(billing.grpc_target) as follower:
        await until(lambda: len(follower.updates) >= 1)
        with pytest.raises(ConditionNotMet):
            await until(lambda: len(follower.updates) >= 2, within_s=3)


async def test_a_revoked_key_is_known_everywhere_within_a_second(world: World) -> None:
    first, second = await asyncio.gather(world.start(), world.start())

    async with follow(first.grpc_target) as near, follow(second.grpc_target) as far:
        delays_s = await _revocation_delays_s(first, [near, far], rounds=10)

    assert max(delays_s) < REVOKED_WITHIN_S, delays_s


async def test_a_process_deaf_to_notifications_would_be_too_late(world: World) -> None:
    first, deaf = await asyncio.gather(world.start(), world.start("deaf_to_notifications"))

    async with follow(first.grpc_target) as near, follow(deaf.grpc_target) as far:
        delays_s = await _revocation_delays_s(first, [near, far], rounds=1)

    assert max(delays_s) > REVOKED_WITHIN_S


async def test_followers_keep_what_they_know_while_postgres_is_away(world: World) -> None:
    billing = await world.start()
    team_id = await billing.create_team("acme")
    key = await billing.create_key(team_id)

    async with follow(billing.grpc_target) as follower:
        await until(lambda: key["key_id"] in follower.keys)
        await asyncio.to_thread(world.postgres_server.kill)
        try:
            seen = len(follower.updates)
            await until(lambda: len(follower.updates) >= seen + 2, within_s=6)
            async with follow(billing.grpc_target) as late_comer:
                await until(lambda: key["key_id"] in late_comer.keys)
        finally:
            await asyncio.to_thread(world.postgres_server.start)
        await until(lambda: _can_revoke(billing.admin, key["key_id"]), within_s=10)
        await until(lambda: follower.is_revoked(key["key_id"]), within_s=5)

    assert [update.is_snapshot for update in follower.updates].count(True) == 1


async def test_a_change_made_by_sql_travels_like_any_other(world: World) -> None:
    billing = await world.start()
    team_id = await billing.create_team("acme")

    async with follow(billing.grpc_target) as follower:
        await until(lambda: team_id in follower.teams)
        async with world.db() as db:
            await db.execute("UPDATE team SET is_suspended = true WHERE team_id = $1", team_id)
        await until(lambda: follower.teams[team_id].is_suspended, within_s=1)


async def test_an_older_database_that_was_restored_gives_a_new_snapshot(world: World) -> None:
    billing = await world.start()
    kept = await billing.create_team("kept")
    lost = await billing.create_team("lost")

    async with follow(billing.grpc_target) as follower:
        await until(lambda: lost in follower.teams)
        async with world.db() as db:
            # What a restore from before the second team looks like.
            await db.execute("ALTER TABLE team DISABLE TRIGGER append_only")
            await db.execute("DELETE FROM team WHERE team_id = $1", lost)
            await db.execute("UPDATE directory_revision SET revision = 1")
        await until(lambda: set(follower.teams) == {kept}, within_s=5)

    assert [update.is_snapshot for update in follower.updates].count(True) == 2


async def _revocation_delays_s(
    billing: Billing, followers: list[Follower], rounds: int
) -> list[float]:
    """Seconds from the call that revokes a key until each follower knows."""
    team_id = await billing.create_team("acme")
    delays_s: list[float] = []
    for _ in range(rounds):
        key_id = (await billing.create_key(team_id))["key_id"]
        for follower in followers:
            await until(partial(follower.knows, key_id))
        began_s = time.monotonic()
        await billing.call("DELETE", f"/keys/{key_id}")
        for follower in followers:
            await until(partial(follower.is_revoked, key_id))
            delays_s.append(time.monotonic() - began_s)
    return delays_s


async def _can_revoke(admin: httpx.AsyncClient, key_id: str) -> bool:
    response = await admin.delete(f"/admin/v1/keys/{key_id}")
    return bool(response.is_success)
