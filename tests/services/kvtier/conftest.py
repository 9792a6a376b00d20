"""kvtier's tests: the real service with a real Mooncake, small segments, short leases."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.fixtures.processes import StartService
from tests.fixtures.servers import NatsServer
from tests.services.kvtier.tier import TierUnderTest


class MakeTier(Protocol):
    """The type of the fixture `make_tier`."""

    def __call__(self, *, lease_s: float = 3.0) -> TierUnderTest: ...


@pytest.fixture
def make_tier(
    nats_server: NatsServer,
    start_service: StartService,
    free_port: Callable[[], int],
    tmp_path: Path,
) -> Iterator[MakeTier]:
    """Makes tiers, each with its own folder and ports; nothing is started yet."""
    made: list[TierUnderTest] = []

    def make(*, lease_s: float = 3.0) -> TierUnderTest:
        folder = tmp_path / f"tier-{len(made)}"
        made.append(TierUnderTest(nats_server.url, start_service, free_port, folder, lease_s))
        return made[-1]

    yield make
    for tier in made:
        tier.close()
