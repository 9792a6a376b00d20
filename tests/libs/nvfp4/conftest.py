"""Which paths this processor runs, and one thread for torch."""

import pytest
import torch

from nvfp4.native.library import Isa, load


@pytest.fixture(params=list(Isa), ids=lambda isa: isa.value)
def isa(request):
    """Each instruction set with a path of its own; those that this processor lacks are skipped."""
    if request.param not in load().supported:
        pytest.skip(f"this processor has no {request.param.value}")
    return request.param


@pytest.fixture(autouse=True, scope="package")
def _one_thread():
    """Test processes share the cores, and torch's threads spin while they wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
