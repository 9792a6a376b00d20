"""Health's tests: the real process, the real broker, and processes that beat."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fixtures.processes import StartService
from tests.fixtures.servers import NatsServer
from tests.services.health.fleet import Beaters, Healths


@pytest.fixture
def beaters(nats_server: NatsServer, tmp_path: Path) -> Iterator[Beaters]:
    """Starts processes that beat."""
    starter = Beaters(nats_server.url, tmp_path)
    yield starter
    starter.kill_all()


@pytest.fixture
def healths(
    nats_server: NatsServer, start_service: StartService, free_port: Callable[[], int]
) -> Healths:
    """Starts health processes."""
    return Healths(nats_server, start_service, free_port)
