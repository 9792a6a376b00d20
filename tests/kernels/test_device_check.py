"""The device check's parts that need no GPU: its cases, timed steps, its words without one."""

import pytest
import torch

from sparse_mla import build, device_check, fuse, verify
from sparse_mla.api import run


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


def test_its_cases_hold_for_the_operator_of_the_cpu():
    assert device_check.compare(device_check.CASES[::6]) == []


def test_it_notices_a_wrong_result(monkeypatch):
    monkeypatch.setattr(device_check, "run", lambda step, _: step.out.fill_(1.0))

    assert len(device_check.compare(device_check.CASES[:2])) == 2


def test_a_fused_timed_step_reads_what_its_tokens_share_once():
    rows = device_check.timed_rows()
    apart = device_check.Shape(8, request_tokens=4, slots=256)
    fused = device_check.Shape(8, request_tokens=4, slots=256, is_fused=True)

    steps = [device_check.make_timed_step(shape, rows, seed=1) for shape in (apart, fused)]

    share = verify.loaded_bytes(steps[1]) / verify.loaded_bytes(steps[0])
    assert 0.3 < share < 0.5  # 0.8 alike: (0.8 + 4 x 0.2) / 4 = 0.4
    assert fuse(steps[0].indices, (4, 4), 16).jobs.tolist() == steps[1].jobs.tolist()
    for step in steps:
        run(step, None)
    torch.testing.assert_close(steps[0].out, steps[1].out)


def test_the_table_has_a_line_for_each_time():
    text = device_check.table([{"tokens": 15, "us": 1.25}, {"tokens": 20, "us": 10.5}])

    assert text.splitlines() == ["tokens    us", "    15  1.25", "    20  10.5"]
