"""What the drivers share: scripted clusters, one for each wire format, and a real engine."""

import pytest

from launcher import model
from tests.libs.engine.real_engine import RealEngine
from tests.toolcall.cluster import ScriptedCluster


@pytest.fixture(scope="module")
def cluster_of(nats_server, tmp_path_factory):
    """The cluster of a format, started when it is first asked for."""
    clusters = {}

    def cluster(format_name, has_family_tokens=False, decode_workers=1):
        key = (format_name, has_family_tokens, decode_workers)
        if key not in clusters:
            folder = tmp_path_factory.mktemp(format_name)
            one = ScriptedCluster(
                format_name, folder, nats_server.url, has_family_tokens, decode_workers
            )
            one.start()
            clusters[key] = one
        return clusters[key]

    yield cluster
    for one in clusters.values():
        one.stop()


@pytest.fixture(scope="module")
def real_engine(tmp_path_factory):
    """The small model with GLM's control tokens on the CPU; it writes scripts where it may."""
    log = tmp_path_factory.mktemp("engine") / "engine.log"
    engine = RealEngine(model.ensure("smollm2-glm"), log)
    try:
        engine.wait_ready()
        yield engine
    finally:
        engine.close()
