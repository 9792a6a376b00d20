"""The torch operator and the function over it, on the CPU, and what they refuse."""

import subprocess
import sys
from dataclasses import fields, replace

import pytest
import torch

from sparse_mla import (
    device,
    fuse,
    nvfp4_sparse_mla_decode,
    nvfp4_sparse_mla_decode_fused,
    op,
    verify,
)
from sparse_mla.checks import check
from sparse_mla.errors import (
    IndexOutOfRange,
    SparseMlaError,
    UnsupportedArchitecture,
    WrongDtype,
    WrongLayout,
    WrongShape,
    WrongValue,
)
from sparse_mla.verify import Case


@pytest.fixture
def step():
    return verify.make_step(Case(heads=4, tokens=3, slots=20, empty=0.1))


def decode(step, **changes):
    arguments = {
        "query": step.query,
        "kv_cache": step.rows,
        "indices": step.indices,
        "bmm1_scale": step.scale,
        **changes,
    }
    return nvfp4_sparse_mla_decode(**arguments)


def arguments_of(step):
    return (*(getattr(step, field.name) for field in fields(step)), 0)


@pytest.mark.engine  # seconds of importing and compiling
def test_importing_needs_no_compiler_and_no_gpu():
    code = "import sparse_mla, sparse_mla.op, sparse_mla.device, sparse_mla.emulated; print('here')"

    done = subprocess.run(
        [sys.executable, "-c", code], env={"PATH": "", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout == "here\n"


def test_the_function_gives_the_reference_on_the_cpu(step):
    out, lse = decode(step, return_lse=True, out=step.out)

    assert out is step.out
    assert verify.difference(replace(step, lse=lse)).is_within(split=True)


def test_the_output_is_bfloat16_unless_given(step):
    assert decode(step).dtype == torch.bfloat16
    assert decode(step).shape == (3, 4, 512)


def test_the_second_scale_multiplies_the_output(step):
    out = torch.empty_like(step.out)

    torch.testing.assert_close(
        decode(step, bmm2_scale=2.5, out=out), 2.5 * decode(step, out=step.out)
    )


def test_fused_tokens_give_what_they_give_alone(step):
    slots = fuse(step.indices, (2, 1), heads=4)
    alone = decode(step, return_lse=True, out=step.out)

    fused = nvfp4_sparse_mla_decode_fused(
        step.query, step.rows, slots, step.scale, out=torch.empty_like(step.out), return_lse=True
    )

    torch.testing.assert_close(fused, alone)


def test_a_batch_without_tokens_is_empty(step):
    out = decode(step, query=step.query[:0], indices=step.indices[:0])

    assert out.shape == (0, 4, 512)


@pytest.mark.parametrize("is_fused", [False, True])
def test_on_a_gpu_a_batch_without_tokens_is_checked_and_not_launched(step, is_fused, monkeypatch):
    launched = []
    monkeypatch.setattr(device, "decode", lambda *step: launched.append(step))
    empty = replace(
        step, query=step.query[:0], indices=step.indices[:0], out=step.out[:0], lse=None
    )
    if is_fused:
        slots = fuse(empty.indices, (), heads=4)
        empty = replace(
            empty, indices=slots.indices, masks=slots.masks, jobs=slots.jobs, planned_tokens=0
        )

    op._on_cuda(*arguments_of(empty))

    assert launched == []
    with pytest.raises(WrongValue):
        op._on_cuda(*arguments_of(replace(empty, scale=float("nan"))))


def test_an_index_counts_rows_across_blocks_that_lie_apart(step):
    storage = torch.randint(0, 256, (4, 3, 8, 352), dtype=torch.uint8)
    block_major = storage[
        :, 1
    ]  # this layer's blocks of 8 rows, with two other layers' between them
    rows = verify.random_rows(32, torch.Generator().manual_seed(1))
    block_major.copy_(rows.view(4, 8, 352))
    chosen = torch.randint(0, 32, step.indices.shape, dtype=torch.int32)

    apart = decode(step, kv_cache=block_major, indices=chosen // 8 * 24 + chosen % 8, out=step.out)

    together = decode(step, kv_cache=rows, indices=chosen, out=torch.empty_like(step.out))
    torch.testing.assert_close(apart, together)


@pytest.mark.engine  # seconds of importing and compiling
def test_torch_can_trace_the_operator(step):
    torch.library.opcheck(torch.ops.millrace.sparse_mla_decode.default, arguments_of(step))


def test_the_operator_is_compiled_into_a_graph(step):
    compiled = torch.compile(
        lambda query: decode(step, query=query, out=step.out) * 2, backend="eager"
    )

    torch.testing.assert_close(
        compiled(step.query), decode(step, out=torch.empty_like(step.out)) * 2
    )


def misaligned(tensor):
    room = torch.empty(tensor.numel() + 16, dtype=tensor.dtype)
    start = next(i for i in range(1, 16) if room[i:].data_ptr() % 16)
    return room[start : start + tensor.numel()].view(tensor.shape).copy_(tensor)


REFUSED = {
    "query of floats": (WrongDtype, "query", lambda s: {"query": s.query.float()}),
    "query of the wrong width": (WrongShape, "576", lambda s: {"query": s.query[:, :, :512]}),
    "flat query": (WrongShape, "tokens, heads", lambda s: {"query": s.query[0]}),
    "129 heads": (WrongShape, "1 to 128", lambda s: {"query": s.query[:, :1].repeat(1, 129, 1)}),
    "query in another order": (
        WrongLayout,
        "contiguous",
        lambda s: {"query": s.query.transpose(0, 1).contiguous().transpose(0, 1)},
    ),
    "query not aligned": (WrongLayout, "multiple of 16", lambda s: {"query": misaligned(s.query)}),
    "cache of floats": (WrongDtype, "kv_cache", lambda s: {"kv_cache": s.rows.float()}),
    "rows of 288 bytes": (WrongShape, "352", lambda s: {"kv_cache": s.rows[:, :288]}),
    "cache not aligned": (WrongLayout, "kv_cache", lambda s: {"kv_cache": misaligned(s.rows)}),
    "rows that lie apart": (
        WrongLayout,
        "whole rows",
        lambda _: {"kv_cache": torch.zeros(8, 400, dtype=torch.uint8)[:, :352]},
    ),
    "indices of longs": (WrongDtype, "indices", lambda s: {"indices": s.indices.long()}),
    "indices of fewer tokens": (WrongShape, "indices", lambda s: {"indices": s.indices[:2]}),
    "no slots": (WrongShape, "slots >= 1", lambda s: {"indices": s.indices[:, :0]}),
    "an index too large": (
        IndexOutOfRange,
        "0 to 1023",
        lambda s: {"indices": torch.full_like(s.indices, 1024)},
    ),
    "an index below -1": (
        IndexOutOfRange,
        "-1 .empty.",
        lambda s: {"indices": torch.full_like(s.indices, -2)},
    ),
    "sinks of another count": (WrongShape, "sinks", lambda _: {"sinks": torch.zeros(5)}),
    "sinks of doubles": (WrongDtype, "sinks", lambda _: {"sinks": torch.zeros(4).double()}),
    "out of another shape": (WrongShape, "out", lambda s: {"out": s.out[:2]}),
    "out of doubles": (WrongDtype, "out", lambda s: {"out": s.out.double()}),
    "a sink of NaN": (WrongValue, "finite", lambda _: {"sinks": torch.full((4,), torch.nan)}),
    "an infinite sink": (WrongValue, "-inf", lambda _: {"sinks": torch.full((4,), torch.inf)}),
    "a scale that is no number": (WrongValue, "finite", lambda _: {"bmm1_scale": float("nan")}),
    "a scale beyond float32": (WrongValue, "float32", lambda _: {"bmm1_scale": 1e300}),
    "an output scale beyond it": (WrongValue, "bmm2_scale", lambda _: {"bmm2_scale": -3.5e38}),
    "nine blocks": (WrongValue, "1 to 8", lambda _: {"num_ctas_per_token": 9}),
    "no blocks": (WrongValue, "1 to 8", lambda _: {"num_ctas_per_token": 0}),
    "FlashInfer's other backend": (WrongValue, "'cuda'", lambda _: {"backend": "cake"}),
    "other probabilities": (
        WrongValue,
        "'fp8'; expected 'fp16' or 'fp16x2'",
        lambda _: {"probabilities": "fp8"},
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_input_is_refused_with_what_was_expected(what, step):
    error, message, change = REFUSED[what]

    with pytest.raises(error, match=message):
        decode(step, **change(step))

    assert issubclass(error, SparseMlaError)


def test_more_blocks_than_a_cluster_has_are_refused_by_the_operator(step):
    with pytest.raises(WrongValue, match="1 to 8"):
        op.call(*arguments_of(step)[:-1], 9)


def test_masks_without_jobs_are_refused(step):
    step = replace(step, masks=torch.ones_like(step.indices))

    with pytest.raises(WrongShape, match="jobs beside them"):
        op.call(*arguments_of(step))


def test_jobs_outside_the_step_are_refused(step):
    slots = fuse(step.indices, (2, 1), heads=4)
    slots.jobs[1, 2] = slots.indices.numel()

    with pytest.raises(WrongShape, match="jobs"):
        nvfp4_sparse_mla_decode_fused(step.query, step.rows, slots, step.scale)


@pytest.mark.parametrize("tokens", [2, 4])
def test_a_plan_for_another_number_of_tokens_is_refused(step, tokens):
    query = step.query[:1].repeat(tokens, 1, 1)
    slots = fuse(step.indices, (2, 1), heads=4)

    with pytest.raises(WrongShape, match=f"jobs is 2 for 3 tokens; expected jobs for {tokens} tok"):
        nvfp4_sparse_mla_decode_fused(query, step.rows, slots, step.scale)


def test_a_plan_is_held_against_the_query_without_reading_its_tensors_back():
    # Tensors without memory, as nothing of a GPU's is read: only the plan's own count can tell.
    step = verify.make_step(Case(slots=20, requests=(2, 1)), "meta")
    check(step)

    with pytest.raises(WrongShape, match="jobs for 3 tokens"):
        check(replace(step, planned_tokens=2))


def test_tokens_without_a_job_are_refused(step):
    slots = fuse(step.indices[:0], (), heads=4)

    with pytest.raises(WrongShape, match="jobs is 0 for 0 tokens"):
        nvfp4_sparse_mla_decode_fused(step.query, step.rows, slots, step.scale)
    with pytest.raises(WrongShape, match="jobs is 0 for 3 tokens"):
        nvfp4_sparse_mla_decode_fused(step.query, step.rows, replace(slots, tokens=3), step.scale)


@pytest.mark.parametrize("capability", [(8, 0), (10, 1), (12, 0)])
def test_an_architecture_without_a_build_is_named(monkeypatch, capability):
    # What a driver says is faked: there is none here.
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)

    with pytest.raises(UnsupportedArchitecture, match="sm_90a or sm_100a or sm_103a"):
        op.device.architecture(0)
