"""The `Fleet` gRPC service: boards out, cordons in, errors translated by one table."""

from collections.abc import AsyncIterator, Awaitable
from typing import Any, NoReturn

import grpc
import grpc.aio

import observe
from health.errors import CordonNotKept, HealthError, InstanceMissing, InstanceUnknown
from health.watch import FleetWatch
from millrace.v1 import fleet_pb2, fleet_pb2_grpc

log = observe.get_logger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]

STATUS: dict[type[HealthError], grpc.StatusCode] = {
    InstanceMissing: grpc.StatusCode.INVALID_ARGUMENT,
    InstanceUnknown: grpc.StatusCode.NOT_FOUND,
    CordonNotKept: grpc.StatusCode.UNAVAILABLE,
}


class FleetEdge(fleet_pb2_grpc.FleetServicer):
    """Serves what FleetWatch knows."""

    def __init__(self, watch: FleetWatch) -> None:
        self._watch = watch

    async def WatchRoutes(  # noqa: N802  # name fixed by the proto
        self, request: fleet_pb2.WatchRoutesRequest, _context: Context
    ) -> AsyncIterator[fleet_pb2.RouteTable]:
        """Streams route tables until the follower leaves."""
        log.info("routes_followed", follower=request.follower)
        async for table in self._watch.route_board.watch():
            yield table

    async def WatchServices(  # noqa: N802  # name fixed by the proto
        self, request: fleet_pb2.WatchServicesRequest, _context: Context
    ) -> AsyncIterator[fleet_pb2.ServiceList]:
        """Streams service lists until the follower leaves."""
        log.info("services_followed", follower=request.follower)
        async for services in self._watch.service_board.watch():
            yield services

    async def Cordon(  # noqa: N802  # name fixed by the proto
        self, request: fleet_pb2.CordonRequest, context: Context
    ) -> fleet_pb2.CordonReply:
        """Takes an instance out of the choice for new requests."""
        return await _reply(context, self._watch.cordon(request, is_cordoned=True))

    async def Uncordon(  # noqa: N802  # name fixed by the proto
        self, request: fleet_pb2.CordonRequest, context: Context
    ) -> fleet_pb2.CordonReply:
        """Gives a cordoned instance back."""
        return await _reply(context, self._watch.cordon(request, is_cordoned=False))


async def _reply(
    context: Context, change: Awaitable[fleet_pb2.ServiceStatus]
) -> fleet_pb2.CordonReply:
    try:
        return fleet_pb2.CordonReply(status=await change)
    except HealthError as error:
        await _abort(context, error)


async def _abort(context: Context, error: HealthError) -> NoReturn:
    await context.abort(STATUS[type(error)], str(error))
    raise AssertionError("abort always raises")
