"""The device check's parts that need no GPU: its cases, timed steps, its words without one."""

from types import SimpleNamespace

import pytest
import torch

from sparse_mla import build, device, device_check, emulated, fuse, verify
from sparse_mla.api import run
from sparse_mla.device_check import Shape
from sparse_mla.planner import Capacity


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    monkeypatch.setattr(device_check, "DEVICE", "cpu")
    monkeypatch.setattr(device_check, "CACHE_ROWS", 4096)


def test_without_a_gpu_it_compiles_all_targets_and_says_that_nothing_was_run(monkeypatch, capsys):
    compiled = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(build, "device_library", compiled.append)

    status = device_check.main()

    assert status == device_check.NOTHING_RUN
    assert compiled == ["sm_90a", "sm_100a", "sm_103a"]
    assert "nothing was run, compared or timed" in capsys.readouterr().out


@pytest.mark.engine
def test_its_cases_hold_for_the_emulated_kernel(monkeypatch):
    monkeypatch.setattr(device_check, "run", emulated.decode)

    assert device_check.compare(device_check.CASES[::6]) == []


def test_it_notices_a_wrong_result(monkeypatch):
    monkeypatch.setattr(device_check, "run", lambda step, _: step.out.fill_(1.0))

    assert len(device_check.compare(device_check.CASES[:2])) == 2


def test_a_fused_timed_step_reads_what_its_tokens_share_once():
    rows = device_check.timed_rows()
    apart = Shape(8, request_tokens=4, slots=256)
    fused = Shape(8, request_tokens=4, slots=256, is_fused=True)

    steps = [device_check.make_timed_step(shape, rows, seed=1) for shape in (apart, fused)]

    share = verify.loaded_bytes(steps[1]) / verify.loaded_bytes(steps[0])
    assert 0.3 < share < 0.5  # 0.8 alike: (0.8 + 4 x 0.2) / 4 = 0.4
    assert fuse(steps[0].indices, (4, 4), 16).jobs.tolist() == steps[1].jobs.tolist()
    for step in steps:
        run(step, None)
    torch.testing.assert_close(steps[0].out, steps[1].out)


@pytest.fixture
def timed(monkeypatch):
    """Times a shape on a machine that is not there: 1 MB of L2, ten microseconds a launch, blocks
    as eight GPCs of 16 multiprocessors allow. Gives its line and the steps."""
    made = []
    properties = SimpleNamespace(L2_cache_size=1 << 20)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(device, "capacity", lambda *_: Capacity.of_gpcs([16] * 8))
    monkeypatch.setattr(
        device_check, "time_graph", lambda steps, _: made.extend(steps) or [10.0, 10.0, 11.0]
    )
    rows = device_check.timed_rows()
    return lambda shape: (device_check.time_shape(shape, rows, "NVIDIA GB200"), made)


@pytest.mark.parametrize("is_fused", [False, True])
def test_the_launches_of_a_time_read_more_than_twice_the_l2_cache(timed, is_fused):
    _, steps = timed(Shape(8, request_tokens=4, slots=128, is_fused=is_fused))

    read = sum(len(step.indices[step.indices >= 0].unique()) * 352 for step in steps)
    assert read > 2 << 20
    assert len({tuple(step.indices.flatten().tolist()) for step in steps}) == len(steps)


def test_the_floor_of_memory_counts_a_row_once_however_many_clusters_load_it(timed):
    (few, _), (many, steps) = (timed(Shape(4, heads, slots=64)) for heads in (16, 128))

    assert many["loaded_gb_per_s"] == 2 * few["loaded_gb_per_s"]
    assert few["hbm_floor_us"] == many["hbm_floor_us"]
    distinct = len(steps[0].indices.unique())
    assert few["hbm_floor_us"] == round(distinct * 352 / 8.0e12 * 1e6, 2)


def test_a_time_names_the_blocks_that_were_used(timed):
    assert timed(Shape(8, slots=512))[0]["blocks"] == 8
    assert timed(Shape(40, slots=512))[0]["blocks"] == 3
    assert timed(Shape(8, slots=512, blocks=5))[0]["blocks"] == 5


def test_the_table_has_a_line_for_each_time():
    text = device_check.table([{"tokens": 15, "us": 1.25}, {"tokens": 20, "us": 10.5}])

    assert text.splitlines() == ["tokens    us", "    15  1.25", "    20  10.5"]
