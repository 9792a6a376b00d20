"""Keeps the directory and the route table up to date from billing and health.

When one of them is away its last snapshot stays in force (fail static), for as long as it takes.
"""

import time

import observe
from gateway import metrics
from gateway.choose import RouteSnapshot
from gateway.keys import DirectorySnapshot
from millrace.v1 import directory_pb2, directory_pb2_grpc, fleet_pb2, fleet_pb2_grpc
from wire import grpc_edge

log = observe.get_logger(__name__)


async def follow_directory(target: str, instance: str, directory: DirectorySnapshot) -> None:
    """Applies every update that billing sends, until cancelled."""
    request = directory_pb2.WatchDirectoryRequest(follower=instance)
    async with grpc_edge.channel(target) as channel:
        stub = directory_pb2_grpc.DirectoryStub(channel)
        async for update in grpc_edge.follow("directory", lambda: stub.WatchDirectory(request)):
            if update.is_snapshot:
                log.info("directory_snapshot", revision=update.revision, keys=len(update.keys))
            directory.apply(update)
            metrics.DIRECTORY_REVISION.set(update.revision)


async def follow_routes(target: str, instance: str, routes: RouteSnapshot) -> None:
    """Applies every route table that health sends, until cancelled."""
    request = fleet_pb2.WatchRoutesRequest(follower=instance)
    async with grpc_edge.channel(target) as channel:
        stub = fleet_pb2_grpc.FleetStub(channel)
        async for table in grpc_edge.follow("routes", lambda: stub.WatchRoutes(request)):
            if table.version != routes.version:
                log.info("routes_changed", version=table.version, models=len(table.deployments))
            routes.apply(table, time.monotonic())
            metrics.ROUTES_VERSION.set(table.version)
