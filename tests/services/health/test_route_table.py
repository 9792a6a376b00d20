"""Where requests may go: the route table that real processes make, cordons, the watch streams."""

import time

import grpc.aio
import pytest

from millrace.v1 import fleet_pb2
from tests.fixtures.servers import NatsServer
from tests.fixtures.wait import until
from tests.services.health.fleet import Beaters, Healths, Watched, fleet_stub, follow
from wire import grpc_edge

PROCESS_START_S = 20.0


async def test_a_deployment_goes_from_ready_to_degraded_to_down_as_workers_leave(
    healths: Healths, beaters: Beaters
) -> None:
    async with healths.run() as health:
        router = beaters.start("router", context=4096)
        prefill, decode = beaters.start("prefill"), beaters.start("decode")
        await until(
            lambda: health.deployment_state(beaters.cluster) == "READY", within_s=PROCESS_START_S
        )
        ready = health.deployment(beaters.cluster)
        prefill.stop()
        await until(lambda: health.deployment_state(beaters.cluster) == "DEGRADED", within_s=1)
        decode.stop()
        await until(lambda: health.deployment_state(beaters.cluster) == "DOWN", within_s=1)
        router.stop()
        await until(lambda: not _upstreams(health.deployment(beaters.cluster)), within_s=1)

        assert ready is not None
        assert (ready.prefill_workers, ready.decode_workers) == (1, 1)
        assert ready.pool == "serverless"
        assert ready.context_tokens == 4096
        assert [u.url for u in ready.upstreams] == [router.record.http_url]
        # Known still: its clients are told to come back, not that there is no such model.
        assert health.deployment_state(beaters.cluster) == "DOWN"


async def test_a_draining_router_stays_listed_and_takes_nothing_new(
    healths: Healths, beaters: Beaters
) -> None:
    async with healths.run() as health:
        leaving, staying = beaters.start("router"), beaters.start("router")
        beaters.start("prefill")
        beaters.start("decode")
        await until(
            lambda: (
                len(_upstreams(health.deployment(beaters.cluster))) == 2
                and health.deployment_state(beaters.cluster) == "READY"
            ),
            within_s=PROCESS_START_S,
        )

        leaving.drain()
        await until(lambda: health.state(leaving) == "DRAINING", within_s=1)

        upstreams = _upstreams(health.deployment(beaters.cluster))
        assert upstreams == {leaving.instance: True, staying.instance: False}
        assert health.deployment_state(beaters.cluster) == "READY"


async def test_an_attached_upstream_needs_no_workers(healths: Healths, beaters: Beaters) -> None:
    async with healths.run() as health:
        attached = beaters.start("upstream")

        await until(
            lambda: health.deployment_state(beaters.cluster) == "READY", within_s=PROCESS_START_S
        )

        assert _upstreams(health.deployment(beaters.cluster)) == {attached.instance: False}


@pytest.mark.fault
async def test_a_cordon_outlives_health_and_its_broker(
    healths: Healths, beaters: Beaters, nats_server: NatsServer
) -> None:
    async with healths.run() as health:
        router = beaters.start("router")
        prefill = beaters.start("prefill")
        beaters.start("decode")
        await until(
            lambda: health.deployment_state(beaters.cluster) == "READY", within_s=PROCESS_START_S
        )
        async with fleet_stub(health) as stub:
            for beater in (router, prefill):
                request = fleet_pb2.CordonRequest(instance=beater.instance, reason="test")
                reply = await stub.Cordon(request, timeout=2)
                assert reply.status.is_cordoned
        await until(lambda: health.deployment_state(beaters.cluster) == "DOWN", within_s=1)
        version = health.routes[-1][1].version
        health.process.kill()

    nats_server.kill()
    nats_server.restart()
    async with healths.run() as health:
        await until(lambda: health.state(router) == "READY", within_s=5)
        cordoned = health.status(router)
        assert cordoned is not None
        assert cordoned.is_cordoned
        assert _upstreams(health.deployment(beaters.cluster)) == {router.instance: True}
        assert health.routes[0][1].version > version

        async with fleet_stub(health) as stub:
            await stub.Uncordon(fleet_pb2.CordonRequest(instance=router.instance), timeout=2)
        await until(lambda: health.deployment_state(beaters.cluster) == "DEGRADED", within_s=1)
        async with fleet_stub(health) as stub:
            await stub.Uncordon(fleet_pb2.CordonRequest(instance=prefill.instance), timeout=2)
        await until(lambda: health.deployment_state(beaters.cluster) == "READY", within_s=1)


async def test_a_cordon_reaches_every_health_process(healths: Healths, beaters: Beaters) -> None:
    async with healths.run() as health, healths.run() as other:
        router = beaters.start("router")
        for each in (health, other):
            await until(lambda each=each: each.state(router) == "READY", within_s=PROCESS_START_S)

        async with fleet_stub(health) as stub:
            await stub.Cordon(fleet_pb2.CordonRequest(instance=router.instance), timeout=2)

        await until(
            lambda: (status := other.status(router)) is not None and status.is_cordoned, within_s=1
        )


async def test_a_cordon_that_cannot_be_kept_is_refused(
    healths: Healths, beaters: Beaters, nats_server: NatsServer
) -> None:
    async with healths.run() as health, fleet_stub(health) as stub:
        router = beaters.start("router")
        await until(lambda: health.state(router) == "READY", within_s=PROCESS_START_S)

        async def refusal(instance: str) -> tuple[grpc.StatusCode, str]:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Cordon(fleet_pb2.CordonRequest(instance=instance), timeout=5)
            return caught.value.code(), caught.value.details() or ""

        nameless = await refusal("")
        unknown = await refusal("router-nobody-knows")
        nats_server.kill()
        try:
            unwritten = await refusal(router.instance)
        finally:
            nats_server.restart()

        assert nameless[0] is grpc.StatusCode.INVALID_ARGUMENT
        assert unknown[0] is grpc.StatusCode.NOT_FOUND
        assert "router-nobody-knows" in unknown[1]
        assert unwritten[0] is grpc.StatusCode.UNAVAILABLE
        assert "try again" in unwritten[1]
        status = health.status(router)
        assert status is not None
        assert not status.is_cordoned


async def test_a_watch_sends_at_once_on_change_and_as_a_sign_of_life(
    healths: Healths, beaters: Beaters
) -> None:
    async with healths.run() as health:
        late = Watched(health.process, health.target)
        asked_s = time.monotonic()
        async with follow(late):
            await until(lambda: len(late.routes) >= 2)
            beaters.start("router")
            await until(
                lambda: late.deployment(beaters.cluster) is not None, within_s=PROCESS_START_S
            )
        (first_s, first), (sign_s, sign) = late.routes[:2]

        assert first_s - asked_s < 0.5
        assert grpc_edge.SIGN_OF_LIFE_S - 0.5 < sign_s - first_s < grpc_edge.SIGN_OF_LIFE_S + 0.5
        assert sign == first
        versions = [table.version for _, table in late.routes]
        assert versions == sorted(versions)
        assert versions[-1] > first.version


@pytest.mark.fault
async def test_health_and_broker_restarted_together_publish_no_empty_table(
    healths: Healths, beaters: Beaters, nats_server: NatsServer
) -> None:
    attached = beaters.start("upstream")
    async with healths.run() as health:
        await until(lambda: health.state(attached) == "READY", within_s=PROCESS_START_S)
        health.process.kill()

    attached.pause()
    nats_server.kill()
    nats_server.restart()
    async with (
        healths.start_and_follow() as health,
        healths.start_and_follow(mutant="first_look_published") as mutant,
    ):
        # Between two beats: the first look finds nobody.
        await until(lambda: "routes_changed" in mutant.process.log(), within_s=PROCESS_START_S)
        attached.resume()
        await until(lambda: health.routes, within_s=PROCESS_START_S)

        assert health.routes[0][1].deployments
        assert '"deployments": 0' in mutant.process.log()


def _upstreams(deployment: fleet_pb2.Deployment | None) -> dict[str, bool]:
    """Upstream instances and whether each is draining."""
    if deployment is None:
        return {}
    return {upstream.instance: upstream.is_draining for upstream in deployment.upstreams}
