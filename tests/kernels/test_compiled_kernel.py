"""What nvcc makes of the kernel, without a GPU: one target here, all three in the bench."""

import shutil

import pytest
import torch

from benches.kernels import cubin, cuda
from sparse_mla import build, device, emulated, verify
from sparse_mla.errors import CompilerMissing, LaunchFailed
from sparse_mla.planner import Capacity
from sparse_mla.verify import Case

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")


@needs_nvcc
def test_on_blackwell_nothing_spills_and_fp4_is_converted_by_the_hardware():
    variants = cubin.compiled("sm_100a")

    assert {(variant.row_tiles, variant.split) for variant in variants} == {
        (tiles, split) for tiles in (1, 2, 4) for split in (False, True)
    }
    for variant in variants:
        assert variant.registers * cuda.THREADS <= cuda.REGISTER_FILE
        assert variant.spilled_bytes == variant.stack_bytes == 0
        assert variant.count("LDL") == variant.count("STL") == 0
        assert variant.count(cuda.NATIVE_FP4) > 0
        assert all(variant.count(name) for name in cuda.EVERYWHERE)
        # Only with four tiles do roles exchange registers: one then holds more than at its start.
        assert (variant.count("USETMAXREG") > 0) == (variant.row_tiles == 4)
        assert (variant.highest_register >= variant.registers) == (variant.row_tiles == 4)


def test_no_compiler_has_a_warning(tmp_path):
    body = str(build.SOURCES / "emulator" / "emulated.cpp")
    said = build.compile_to(["g++", *build.HOST_FLAGS, "-fsyntax-only", body], tmp_path / "nothing")

    assert said == ""


@needs_nvcc
@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU would take the CPU's addresses")
def test_without_a_gpu_a_launch_is_an_error_that_names_cudas_reason():
    step = verify.make_step(Case())
    library = device._load("sm_100a")

    with pytest.raises(LaunchFailed, match="CUDA error") as failed:
        device._succeed(library, library.sparse_mla_decode(step.to_call(3)))

    assert failed.value.code != 0


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
