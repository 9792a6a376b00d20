"""Faults act on the one stack of the session; each test leaves it whole."""

import grpc.aio
import httpx
import openai
import pytest

from millrace.v1 import fleet_pb2, fleet_pb2_grpc
from tests.fixtures.ledger import Ledger
from tests.fixtures.wait import until

WHOLE_WITHIN_S = 240.0
"""An engine loads in 25 s on an idle machine and up to 3 minutes on a busy one."""


@pytest.fixture
def ledger(stack) -> Ledger:
    return Ledger(stack.internal["BILLING_DATABASE_URL"])


@pytest.fixture
def until_whole(stack):
    """Waits until every process is READY under the pid that it has now, and the model is served.

    By pid, because the record of a killed process stays READY until its lease ends.
    """

    async def ready_pids(stub: fleet_pb2_grpc.FleetStub) -> set[int]:
        request = fleet_pb2.WatchServicesRequest(follower="test")
        services = await stub.WatchServices(request, timeout=5).read()
        assert isinstance(services, fleet_pb2.ServiceList)
        ready = fleet_pb2.SERVICE_STATE_READY
        return {each.record.pid for each in services.services if each.state == ready}

    async def is_model_ready(stub: fleet_pb2_grpc.FleetStub) -> bool:
        request = fleet_pb2.WatchRoutesRequest(follower="test")
        table = await stub.WatchRoutes(request, timeout=5).read()
        assert isinstance(table, fleet_pb2.RouteTable)
        states = [d.state for d in table.deployments if d.model == "smollm2"]
        return states == [fleet_pb2.DEPLOYMENT_STATE_READY]

    async def is_whole() -> bool:
        services = {n: p for n, p in stack.processes().items() if n not in ("nats", "postgres")}
        async with grpc.aio.insecure_channel(stack.internal["HEALTH_TARGET"]) as channel:
            stub = fleet_pb2_grpc.FleetStub(channel)
            try:
                pids = await ready_pids(stub)
                return set(services.values()) <= pids and await is_model_ready(stub)
            except grpc.aio.AioRpcError:
                return False

    async def is_answering() -> bool:
        async with httpx.AsyncClient() as client:
            try:
                reply = await client.get(f"{stack.url}/readyz", timeout=5)
            except httpx.HTTPError:
                return False
            return reply.status_code == 200

    async def wait() -> None:
        await until(is_whole, within_s=WHOLE_WITHIN_S, what="every process is READY again")
        await until(is_answering, within_s=30, what="the gateway is ready")

    return wait


@pytest.fixture
async def sdk(stack):
    """An SDK client without retries of its own."""
    async with openai.AsyncOpenAI(
        base_url=stack.base_url, api_key=stack.api_key, max_retries=0, timeout=30
    ) as client:
        yield client
