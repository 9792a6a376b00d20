"""Billing in tests: a database and a usage stream of its own, real processes around it."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fixtures.processes import StartService
from tests.fixtures.servers import NatsServer, PostgresServer
from tests.services.billing.world import World, open_world


@pytest.fixture
async def world(
    nats_server: NatsServer,
    postgres_server: PostgresServer,
    start_service: StartService,
    tmp_path: Path,
) -> AsyncIterator[World]:
    """An empty database, an empty usage stream, and the means to start billing on them."""
    url = postgres_server.create_database(f"billing_{uuid.uuid4().hex[:12]}")
    async with open_world(nats_server, postgres_server, url, start_service, tmp_path) as opened:
        yield opened
