"""Each CPU fix: upstream still needs it, it reaches vLLM's processes, and it does what it says.

When `test_upstream_still_needs` fails after an upgrade, delete that fix.
"""

import subprocess
import sys

import pytest

from engine import cpu_fixes

pytestmark = pytest.mark.engine

EXPAND_PROBE = """
import torch
from vllm.platforms import current_platform
from vllm.utils import cpu_triton_utils
from engine import cpu_fixes
current_platform.import_kernels()
if {fixed}:
    cpu_fixes.install()
    cpu_fixes.install()
for dtype, given, wanted in (
    (torch.float32, [0.8, 0.0], [0.8, 0.8, 0.8, 1.0, 1.0, 1.0]),
    (torch.int32, [50, 0], [50, 50, 50, 1, 1, 1]),
    (torch.int64, [50, 0], [50, 50, 50, 1, 1, 1]),
):
    output = torch.full((6,), 123, dtype=dtype)
    cpu_triton_utils._expand_kernel_impl(
        output, torch.tensor(given, dtype=dtype), torch.tensor([3, 6], dtype=torch.int32), 0, 1
    )
    print(torch.equal(output, torch.tensor(wanted, dtype=dtype)))
"""

NIXL_PROBE = """
import os, time
from engine import cpu_fixes
if {fixed}:
    cpu_fixes.install()
from nixl_cu12._api import nixl_agent, nixl_agent_config
agent = nixl_agent("probe", nixl_agent_config(backends=["UCX"]))
before = time.process_time()
time.sleep(1.5)
print((time.process_time() - before) / 1.5, flush=True)
os._exit(0)  # NIXL 1.5 crashes when an agent is destroyed at interpreter exit
"""


def run(code):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


@pytest.fixture(scope="module")
def is_needed():
    """What each fix says of the installed versions; one process, as importing vLLM takes long."""
    code = "from engine import cpu_fixes; print(*(fix.is_needed() for fix in cpu_fixes.FIXES))"
    answers = run(code)[-len(cpu_fixes.FIXES) :]
    return dict(zip([fix.name for fix in cpu_fixes.FIXES], answers, strict=True))


@pytest.mark.parametrize("fix", cpu_fixes.FIXES, ids=lambda fix: fix.name)
def test_upstream_still_needs(fix, is_needed):
    assert is_needed[fix.name] == "True", f"delete {fix.name}; it answered: {fix.upstream}"


def test_vllm_finds_the_plugin():
    code = (
        "from importlib.metadata import entry_points;"
        "print([e.value for e in entry_points(group='vllm.general_plugins')])"
    )

    assert "engine.cpu_fixes:install" in " ".join(run(code))


def test_the_expand_kernel_keeps_its_output_only_with_the_fix():
    assert run(EXPAND_PROBE.format(fixed=False))[-3:] == ["False", "False", "True"]
    assert run(EXPAND_PROBE.format(fixed=True))[-3:] == ["True", "True", "True"]


def test_an_idle_nixl_agent_burns_cpu_only_without_the_fix():
    stock = float(run(NIXL_PROBE.format(fixed=False))[-1])
    fixed = float(run(NIXL_PROBE.format(fixed=True))[-1])

    # 0.15-0.6 of a core against about 0.01; the bounds leave room for a busy machine.
    assert fixed < 0.05
    assert stock > 3 * fixed


def test_a_seeded_prompt_that_is_computed_in_parts_is_answered(real_engine):
    """1,500 tokens are two steps of 1,024, and one step once the prefix cache has them.

    An equal answer shows that the first step's discarded token drew nothing from the seed.
    """
    prompt = [1000 + 7 * at for at in range(1500)]
    sampled = {"temperature": 1.0, "seed": 5, "most": 8, "ignore_eos": True}

    in_parts, in_one = (real_engine.answer(prompt, **sampled) for _ in range(2))
    other_seed = real_engine.answer(prompt, **{**sampled, "seed": 6})

    assert in_parts.error is None, in_parts.message
    assert len(in_parts.tokens) == 8
    assert in_parts.tokens == in_one.tokens
    assert in_parts.tokens != other_seed.tokens
