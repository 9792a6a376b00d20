"""The kernel's two builds without a GPU; what ptxas makes of it is a figure of the bench."""

import shutil

import pytest
import torch

from benches.kernels import cuda
from sparse_mla import build, device, emulated, verify
from sparse_mla.errors import CompilerMissing, LaunchFailed, UnsupportedArchitecture
from sparse_mla.planner import Capacity
from sparse_mla.verify import Case

needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="no nvcc on PATH; the bench fetches one"
)


def test_no_compiler_has_a_warning(tmp_path):
    body = str(build.SOURCES / "emulator" / "emulated.cpp")
    said = build.compile_to(["g++", *build.HOST_FLAGS, "-fsyntax-only", body], tmp_path / "nothing")

    assert said == ""


@pytest.mark.engine
@needs_nvcc
@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU would take the CPU's addresses")
def test_without_a_gpu_a_launch_is_an_error_that_names_cudas_reason():
    step = verify.make_step(Case())
    library = device._load("sm_100a")

    with pytest.raises(LaunchFailed, match="CUDA error") as failed:
        device._succeed(library, library.sparse_mla_decode(step.to_call(3)))

    assert failed.value.code != 0


def test_the_emulator_names_the_only_cpu_it_runs_on(monkeypatch):
    monkeypatch.setattr(build.platform, "machine", lambda: "aarch64")

    with pytest.raises(UnsupportedArchitecture, match="type aarch64; expected x86_64"):
        build.emulator_library.__wrapped__()


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "")

    with pytest.raises(CompilerMissing, match="nvcc was not found"):
        build.cubin_command("sm_100a")


def test_a_block_fits_the_multiprocessor_that_the_planner_gives_it():
    sizes = [emulated.shared_bytes(tiles, split) for tiles in (1, 2, 4) for split in (False, True)]

    assert max(sizes) <= cuda.SHARED_BYTES
    assert 2 * min(sizes) > cuda.SHARED_BYTES  # so one each, as Capacity counts
    assert Capacity.of_gpcs((16,)).clusters[1] == 16


def test_the_floor_table_is_the_arithmetic_of_bytes_and_operations():
    lines = cuda.floor_table().splitlines()

    assert "not measured" in lines[0]
    assert lines[2].split()[:4] == ["15", "10.8", "1.35", "us"]
