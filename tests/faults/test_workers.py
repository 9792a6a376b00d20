"""A worker's own faults and its control port, on the real engine."""

import secrets

import grpc.aio
import psutil
import pytest

from millrace.v1 import worker_pb2, worker_pb2_grpc
from tests.fixtures.wait import until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(420)]


def engine_core(pid: int) -> psutil.Process:
    """vLLM's EngineCore below a worker's process."""
    for child in psutil.Process(pid).children(recursive=True):
        if "EngineCore" in " ".join(child.cmdline()):
            return child
    raise AssertionError(f"no EngineCore below {pid}")


def control(stack, name):
    return grpc.aio.insecure_channel(stack.internal[f"{name.upper().replace('-', '_')}_TARGET"])


def aborts(stack, name) -> int:
    return stack.log(name).count('"request_aborted"')


async def ask(sdk, **changes):
    body = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": f"Say {secrets.token_hex(4)}."}],
        "max_tokens": 4,
        "temperature": 0,
    }
    return await sdk.chat.completions.create(**{**body, **changes})


async def test_a_worker_whose_engine_died_does_not_stay(stack, until_whole, sdk):
    await until_whole()
    pid = stack.processes()["decode-1"]

    engine_core(pid).kill()

    # The process is alive and registered now; it must end by itself, and nobody may notice.
    answer = await ask(sdk)
    assert answer.choices[0].finish_reason is not None
    await until(lambda: not psutil.pid_exists(pid), within_s=10, what="the worker left")
    stack.until_back("decode-1", pid)
    await until_whole()
    assert '"exit_code": 13' in stack.log("decode-1")


async def test_a_draining_worker_gets_no_new_request_until_it_is_resumed(stack, until_whole, sdk):
    await until_whole()
    async with control(stack, "decode-1") as channel:
        stub = worker_pb2_grpc.WorkerControlStub(channel)
        before = await stub.GetWorkerStatus(worker_pb2.GetWorkerStatusRequest())
        drained = await stub.DrainWorker(worker_pb2.DrainWorkerRequest(reason="test"), timeout=30)
        assert drained.is_draining
        assert drained.running_requests == 0

        await ask(sdk)
        during = await stub.GetWorkerStatus(worker_pb2.GetWorkerStatusRequest())
        assert during.generated_tokens == before.generated_tokens, "it was sent a request"

        await stub.ResumeWorker(worker_pb2.ResumeWorkerRequest())

        async def decodes_again() -> bool:
            await ask(sdk)
            now = await stub.GetWorkerStatus(worker_pb2.GetWorkerStatusRequest())
            return now.generated_tokens > before.generated_tokens

        await until(decodes_again, within_s=15)


@pytest.mark.parametrize("leaves_at_once", [True, False])
async def test_a_prefill_that_its_client_leaves_is_stopped(stack, until_whole, sdk, leaves_at_once):
    await until_whole()
    text = f"{secrets.token_hex(8)} " + "The quick brown fox jumps over the lazy dog. " * 600
    async with control(stack, "prefill-1") as channel, control(stack, "decode-1") as other:
        prefill = worker_pb2_grpc.WorkerControlStub(channel)
        decode = worker_pb2_grpc.WorkerControlStub(other)
        before = await decode.GetWorkerStatus(worker_pb2.GetWorkerStatusRequest())
        aborts_before = aborts(stack, "prefill-1")

        async def running() -> int:
            now = await prefill.GetWorkerStatus(worker_pb2.GetWorkerStatusRequest())
            return now.running_requests

        async def is_running() -> bool:
            return await running() == 1

        async def is_idle() -> bool:
            return await running() == 0

        async with sdk.chat.completions.with_streaming_response.create(
            model="smollm2",
            messages=[{"role": "user", "content": text}],
            max_tokens=4,
            stream=True,
        ):
            if not leaves_at_once:
                await until(is_running, within_s=5, what="the prompt is being computed")
        # The whole prompt takes more than ten seconds; a step of it, about two.
        await until(is_idle, within_s=7, what="prefill gave the request up")
        after = await decode.GetWorkerStatus(worker_pb2.GetWorkerStatusRequest())
        assert after.nixl_bytes_pulled == before.nixl_bytes_pulled, "its KV was moved for nobody"
    if not leaves_at_once:  # one that left earlier may never have reached the worker
        # The worker writes it a moment after the request left its count.
        await until(lambda: aborts(stack, "prefill-1") > aborts_before, within_s=5)
    await ask(sdk)
