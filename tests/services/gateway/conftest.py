"""The gateway's neighbours are started once for all of its tests, each gateway process as needed.

NATS is the gateway's own: other tests of the session may empty the usage stream or run another
billing.
"""

import itertools
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import nats
import pytest

from tests.fixtures.servers import NatsServer, PostgresServer
from tests.fixtures.wait import until
from tests.services.gateway.scripted_upstream import ScriptedUpstream
from tests.services.gateway.world import Gateway, Key, World


@pytest.fixture(scope="package")
async def world(
    postgres_server: PostgresServer,
    free_port: Callable[[], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[World]:
    """NATS, a database, billing and health."""
    nats_server = NatsServer(tmp_path_factory.mktemp("gateway-nats"))
    nats_server.start()
    nc = await nats.connect(nats_server.url, max_reconnect_attempts=-1, reconnect_time_wait=0.1)
    url = postgres_server.create_database(f"gateway_{uuid.uuid4().hex[:12]}")
    world = World(nats_server, nc, url, tmp_path_factory.mktemp("gateway"), free_port)
    world.start_billing()
    world.start_health()
    try:
        await world.billing.until_ready()
        await world.health.until_ready()
        await world.set_price("scripted")
        yield world
    finally:
        world.billing.kill()
        world.health.kill()
        await nc.close()
        nats_server.stop()


@pytest.fixture(scope="package")
async def key(world: World) -> Key:
    """A team's key that stays valid."""
    return await world.new_key()


@pytest.fixture(scope="package")
async def upstream(world: World) -> AsyncIterator[ScriptedUpstream]:
    """The upstream of the model `scripted`."""
    async with world.attached("scripted") as upstream:
        yield upstream


@pytest.fixture(scope="package")
async def gateway(world: World, upstream: ScriptedUpstream, key: Key) -> AsyncIterator[Gateway]:
    """A gateway for tests that leave it as it was."""
    with world.gateway() as gateway:
        await gateway.until_ready()
        async with gateway.client(key) as http:

            async def knows_the_model() -> bool:
                return (await http.get("/v1/models/scripted")).status_code == 200

            await until(knows_the_model, what="the model is routed")
        yield gateway
        assert gateway.process.stop() == 0


_folders = itertools.count()


@pytest.fixture
def spool_dir(world: World) -> Path:
    """A spool folder that outlives a gateway process."""
    return world.folder / f"kept-spool-{next(_folders)}"
