"""vLLM selects the backend and gets the kernel's attention through it, as far as a CPU can show.

vLLM's CPU platform refuses sparse attention before it asks any backend, so no engine runs here.
What runs is vLLM's registry, its configuration, the selector of its CUDA platform with a faked
driver (its compiled library and what the device says), and the backend's own `forward_mqa` on CPU
tensors with vLLM's one Triton kernel on the way replaced. It runs in a process of its own: vLLM
keeps what it has imported and registered. (A file named test_vllm_* would make dynamo's plugin for
pytest import vLLM while it collects, in every run: ten seconds.)
"""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.engine

SELECTION = """
import sys, types
sys.modules["vllm._C_stable_libtorch"] = types.ModuleType("vllm._C_stable_libtorch")
import torch
from importlib.metadata import entry_points
[found] = [e for e in entry_points(group="vllm.general_plugins") if "sparse_mla" in e.name]
print("entry", found.value)
from vllm.plugins import load_general_plugins
load_general_plugins()  # as every process of vLLM does
from sparse_mla import vllm_plugin
vllm_plugin.register()  # and once more, as in a process that starts others
from vllm.config.attention import AttentionConfig
from vllm.platforms import cuda, current_platform
from vllm.platforms.interface import DeviceCapability
from vllm.v1.attention.selector import AttentionSelectorConfig

backend = AttentionConfig(backend="millrace_sparse_mla").backend
print("configured", backend.name, backend.get_class().__module__)
wanted = AttentionSelectorConfig(
    head_size=576, dtype=torch.bfloat16, kv_cache_dtype="nvfp4_ds_mla", block_size=64,
    use_mla=True, use_sparse=True,
)

def select(capability, config):
    class Device(cuda.CudaPlatformBase):
        @classmethod
        def get_device_capability(cls, device_id=0):
            return DeviceCapability(*capability)
    return Device.get_attn_backend_cls(backend, config, num_heads=16)

def refused(call, *arguments):
    try:
        return call(*arguments)
    except (ValueError, NotImplementedError) as error:
        return str(error)

print("10.0", select((10, 0), wanted))
print("10.3", select((10, 3), wanted._replace(use_kv_connector=True, use_dcp=True)))
print("9.0", refused(select, (9, 0), wanted))
print("fp8", refused(select, (10, 0), wanted._replace(kv_cache_dtype="fp8")))
print("head", refused(select, (10, 0), wanted._replace(head_size=512)))
print("dense", refused(select, (10, 0), wanted._replace(use_sparse=False)))
print("sinks", refused(select, (10, 0), wanted._replace(has_sink=True)))
print("cpu", refused(current_platform.get_attn_backend_cls, backend, wanted))
"""

FORWARD = """
import torch
from sparse_mla import reference, vllm_backend, verify
from vllm.model_executor.layers.attention.mla_attention import (
    _canonicalize_sparse_mla_kv_cache_dtype as canonical,
)
print("dtype", canonical(vllm_backend.SparseMlaBackend, "nvfp4_ds_mla"))

def convert(req_id, table, chosen, BLOCK_SIZE, BLOCK_STRIDE_ROWS, NUM_TOPK_TOKENS, **_):
    at = chosen.long().clamp(min=0)
    block = table[req_id.long()].gather(1, at // BLOCK_SIZE)
    rows = block * BLOCK_STRIDE_ROWS + at % BLOCK_SIZE
    return torch.where(chosen < 0, -1, rows).int()

vllm_backend.triton_convert_req_index_to_global_index = convert
generator = torch.Generator().manual_seed(0)
storage = verify.random_rows(6 * 3 * 8, generator).view(6, 3, 8, 352)
cache = storage[:, 1]  # block-major: two other layers' blocks lie between this one's
impl = object.__new__(vllm_backend.SparseMlaImpl)
impl.scale, impl.dcp_world_size, impl.need_to_return_lse_for_decode = 1 / 24, 1, True
impl.topk_indices_buffer = torch.randint(0, 24, (8, 20), dtype=torch.int32, generator=generator)
impl.topk_indices_buffer[:, 15:] = -1
class Metadata:
    block_size = 8
    block_table = torch.tensor([[5, 0, 2], [1, 3, 4]])
    req_id_per_token = torch.tensor([0, 0, 1], dtype=torch.int32)
q = torch.randn(3, 4, 576, generator=generator).bfloat16()

out, lse = impl.forward_mqa((q[..., :512], q[..., 512:]), cache, Metadata, None)

chosen = impl.topk_indices_buffer[:3, :15].long()
table = Metadata.block_table[Metadata.req_id_per_token.long()]
block = table.gather(1, chosen // 8)
rows = cache.reshape(-1, 352)
expected, sums = reference.attend(q, rows, block * 8 + chosen % 8, 1 / 24)
print("error", float((out.double() - expected).norm() / expected.norm()) < 4e-3)  # bfloat16's
print("lse", bool(torch.allclose(lse.double(), sums, atol=1e-5)))
print("builder", vllm_backend.SparseMlaBackend.get_builder_cls().__name__)
"""


def run(code):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.split(" ", 1) for line in done.stdout.splitlines() if " " in line]
    return dict(lines)


@pytest.fixture(scope="module")
def found():
    """Both probes in one process: importing vLLM takes longer than they do."""
    return run(SELECTION + FORWARD)


def test_vllm_configures_the_backend_by_its_name(found):
    assert found["configured"] == "MILLRACE_SPARSE_MLA sparse_mla.vllm_backend"


@pytest.mark.parametrize("capability", ["10.0", "10.3"])
def test_vllms_cuda_selector_takes_it_on_blackwell(found, capability):
    assert found[capability] == "sparse_mla.vllm_backend.SparseMlaBackend"


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("9.0", "compute capability not supported"),
        ("fp8", "kv_cache_dtype not supported"),
        ("head", "head_size not supported"),
        ("dense", "non-sparse not supported"),
        ("sinks", "attention sinks not supported"),
    ],
)
def test_vllms_cuda_selector_says_why_it_refuses_it(found, what, reason):
    assert reason in found[what]


def test_vllms_cpu_platform_refuses_sparse_attention_before_asking_a_backend(found):
    assert found["cpu"] == "Sparse Attention is not supported on CPU."


def test_every_vllm_process_finds_the_backend_by_its_entry_point(found):
    assert found["entry"] == "sparse_mla.vllm_plugin:register"


def test_forward_gives_the_references_attention_over_a_block_major_cache(found):
    names = ("dtype", "error", "lse", "builder")

    assert [found[name] for name in names] == [
        "nvfp4_ds_mla",
        "True",
        "True",
        "SparseMlaMetadataBuilder",
    ]
