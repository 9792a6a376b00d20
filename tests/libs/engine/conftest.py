"""One real engine for the tests of this folder that ask for it."""

import pytest

from launcher import model
from tests.libs.engine.real_engine import RealEngine


@pytest.fixture(scope="session")
def real_engine(tmp_path_factory):
    """The small model with GLM's control tokens, on the CPU, with scripts allowed."""
    engine = RealEngine(
        model.ensure("smollm2-glm"), tmp_path_factory.mktemp("engine") / "engine.log"
    )
    try:
        engine.wait_ready()
        yield engine
    finally:
        engine.close()
