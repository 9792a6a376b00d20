"""A user's view of the running platform: the official SDK, a demo key, and the books."""

from collections.abc import AsyncIterator, Iterator

import grpc.aio
import openai
import pytest

from millrace.v1 import kvtier_pb2, kvtier_pb2_grpc, worker_pb2, worker_pb2_grpc
from tests.fixtures.ledger import Ledger


@pytest.fixture
def client(stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=stack.base_url, api_key=stack.api_key, max_retries=0, timeout=60
    ) as client:
        yield client


@pytest.fixture
async def async_client(stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=stack.base_url, api_key=stack.api_key, max_retries=0, timeout=60
    ) as client:
        yield client


@pytest.fixture
def ledger(stack) -> Ledger:
    return Ledger(stack.internal["BILLING_DATABASE_URL"])


@pytest.fixture
def worker_status(stack):
    """Asks a worker (`prefill-1`, `decode-1`) for its counters."""

    async def ask(name: str) -> worker_pb2.WorkerStatus:
        target = stack.internal[f"{name.upper().replace('-', '_')}_TARGET"]
        async with grpc.aio.insecure_channel(target) as channel:
            stub = worker_pb2_grpc.WorkerControlStub(channel)
            return await stub.GetWorkerStatus(worker_pb2.GetWorkerStatusRequest(), timeout=5)

    return ask


@pytest.fixture
def kvtier_stats(stack):
    """Asks the second KV tier for its figures."""

    async def ask() -> kvtier_pb2.KvTierStats:
        async with grpc.aio.insecure_channel(stack.internal["KVTIER_TARGET"]) as channel:
            stub = kvtier_pb2_grpc.KvTierStub(channel)
            return await stub.GetKvTierStats(kvtier_pb2.GetKvTierStatsRequest(), timeout=5)

    return ask
