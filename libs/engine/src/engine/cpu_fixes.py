"""Four defects of vLLM 0.32 and NIXL 1.5 on CPU hosts, answered in one place.

Installed as a `vllm.general_plugins` entry point: vLLM loads those in the parent, in EngineCore and
in every worker process before its kernels are registered, and each fix is safe to install twice.
Each one names the upstream line it answers and has a check, `is_needed`, that looks at the
installed version: a test runs all of them and fails when upstream no longer needs a fix, so that it
is deleted.
"""

import importlib.util
import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

NIXL_PROGRESS_DELAY_US = 1000
"""Idle CPU of a NIXL agent falls from 20-57% of a core to about 1%, and reads get faster (9.4
against 16.9 ms for 20 MB on two cores). On GPU hosts with cores to spare 0 may be better."""
SHM_WAIT_S = 0.0002
"""With sched_yield a decode's first token took 9-32 s on two busy cores, with this sleep 0.14 s."""


@dataclass(frozen=True)
class CpuFix:
    """One answered defect."""

    name: str
    upstream: str
    is_needed: Callable[[], bool]
    install: Callable[[], None]


def install() -> None:
    """The plugin's entry point: installs every fix whose package is there."""
    for fix in FIXES:
        fix.install()


def _nixl_api() -> Any | None:
    if importlib.util.find_spec("nixl_cu12") is None:
        return None
    import nixl_cu12._api as nixl_api

    return nixl_api


def _nixl_polls_without_pause() -> bool:
    nixl_api = _nixl_api()
    return nixl_api is not None and "pthrDelay = 0" in inspect.getsource(nixl_api.nixl_agent)


def _pause_nixl_progress_thread() -> None:
    nixl_api = _nixl_api()
    if nixl_api is None:
        return
    stock = nixl_api.nixlBind.nixlAgentConfig
    if getattr(stock, "has_delay_floor", False):
        return

    class AgentConfig(stock):  # type: ignore[misc, valid-type]  # a C++ class without types
        """NIXL's agent configuration whose progress thread never polls without a pause."""

        has_delay_floor = True

        @property
        def pthrDelay(self) -> int:  # noqa: N802  # upstream's name
            return int(stock.pthrDelay.__get__(self))

        @pthrDelay.setter
        def pthrDelay(self, delay_us: int) -> None:  # noqa: N802
            stock.pthrDelay.__set__(self, max(int(delay_us), NIXL_PROGRESS_DELAY_US))

    nixl_api.nixlBind.nixlAgentConfig = AgentConfig


def _shm_queue_spins() -> bool:
    from vllm.distributed.device_communicators import shm_broadcast

    return "sched_yield()" in inspect.getsource(shm_broadcast.SpinCondition.wait)


def _sleep_in_shm_queue() -> None:
    from vllm.distributed.device_communicators import shm_broadcast

    shm_broadcast.sched_yield = lambda: time.sleep(SHM_WAIT_S)


def _expand_kernel_loses_its_output() -> bool:
    from vllm.utils import cpu_triton_utils

    return "_ensure_int64(output)" in inspect.getsource(cpu_triton_utils._expand_kernel_impl) or (
        cpu_triton_utils._expand_kernel_impl is _expand_kernel
    )


def _keep_expand_kernel_output() -> None:
    from vllm.utils import cpu_triton_utils

    cpu_triton_utils._expand_kernel_impl = _expand_kernel


def _expand_kernel(
    output: Any,
    input_val: Any,
    cu_num_tokens: Any,
    replace_from: float,
    replace_to: float,
    MAX_NUM_TOKENS: int | None = None,  # noqa: N803, ARG001  # the kernel's own signature
) -> None:
    """output[i] = the value of the request that owns token i, by cumulative cu_num_tokens.

    output and input_val have one dtype (float32, int32 or int64); a value equal to replace_from
    becomes replace_to.
    """
    import torch

    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    values = torch.where(input_val == replace_from, replace_to, input_val).to(output.dtype)
    output.copy_(torch.repeat_interleave(values, counts.long()))


def _rewinds_generators_by_offset() -> bool:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    return "set_offset(gen.get_offset()" in inspect.getsource(GPUModelRunner._bookkeeping_sync)


def _rewind_generators_by_state() -> None:
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    if getattr(CPUModelRunner, "rewinds_by_state", False):
        return
    sample, bookkeep = CPUModelRunner._sample, CPUModelRunner._bookkeeping_sync

    def discarded(runner: Any) -> dict[int, Any]:
        """Generators of the requests whose prompt is not whole yet: their token is discarded."""
        batch = runner.input_batch
        is_discarded = runner.discard_request_mask.np[: batch.num_reqs]
        return {at: gen for at, gen in batch.generators.items() if is_discarded[at]}

    def rewinding_sample(runner: Any, *args: Any, **kwargs: Any) -> Any:
        before = [(gen, gen.get_state()) for gen in discarded(runner).values()]
        try:
            return sample(runner, *args, **kwargs)
        finally:
            for gen, state in before:
                gen.set_state(state)

    def bookkeep_without_rewinding(runner: Any, *args: Any, **kwargs: Any) -> Any:
        hidden = discarded(runner)
        generators = runner.input_batch.generators
        for at in hidden:
            del generators[at]
        try:
            return bookkeep(runner, *args, **kwargs)
        finally:
            generators.update(hidden)

    CPUModelRunner._sample = rewinding_sample
    CPUModelRunner._bookkeeping_sync = bookkeep_without_rewinding
    CPUModelRunner.rewinds_by_state = True


FIXES = (
    CpuFix(
        "nixl_progress_pause",
        "nixl_cu12/_api.py, nixl_agent.__init__: `agent_config.pthrDelay = 0` makes the UCX"
        " progress thread poll without a pause (NIXL 1.5)",
        _nixl_polls_without_pause,
        _pause_nixl_progress_thread,
    ),
    CpuFix(
        "shm_queue_sleep",
        "vllm/distributed/device_communicators/shm_broadcast.py, SpinCondition.wait: sched_yield()"
        " in a loop for a second after each message starves the thread on a busy host (vLLM 0.32)",
        _shm_queue_spins,
        _sleep_in_shm_queue,
    ),
    CpuFix(
        "expand_kernel_output",
        "vllm/utils/cpu_triton_utils.py, _expand_kernel_impl: converts `output` to int64 and never"
        " copies back, so speculative sampling reads uninitialised temperature, top_p and top_k"
        " (vLLM 0.32)",
        _expand_kernel_loses_its_output,
        _keep_expand_kernel_output,
    ),
    CpuFix(
        "seeded_chunked_prefill",
        "vllm/v1/worker/gpu_model_runner.py, _bookkeeping_sync: `gen.set_offset(gen.get_offset() -"
        " 4)` takes back what a discarded token drew; CPU generators have no offset, so a request"
        " with a seed whose prompt is computed in parts ends the engine (vLLM 0.32)",
        _rewinds_generators_by_offset,
        _rewind_generators_by_state,
    ),
)
