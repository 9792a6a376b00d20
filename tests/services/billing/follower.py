"""A gateway's side of WatchDirectory: keeps what it was told and when."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from millrace.v1 import directory_pb2, directory_pb2_grpc
from wire import grpc_edge


@dataclass
class Follower:
    """Updates in the order they came, each with the moment it came."""

    updates: list[directory_pb2.DirectoryUpdate] = field(default_factory=list)
    at_s: list[float] = field(default_factory=list)
    keys: dict[str, directory_pb2.ApiKey] = field(default_factory=dict)
    teams: dict[str, directory_pb2.Team] = field(default_factory=dict)
    prices: dict[str, directory_pb2.ModelPrice] = field(default_factory=dict)

    def take(self, update: directory_pb2.DirectoryUpdate) -> None:
        """Applies an update as the contract says."""
        self.updates.append(update)
        self.at_s.append(time.monotonic())
        if update.is_snapshot:
            self.keys, self.teams, self.prices = {}, {}, {}
        self.keys |= {key.key_id: key for key in update.keys}
        self.teams |= {team.team_id: team for team in update.teams}
        self.prices |= {price.model: price for price in update.prices}

    def knows(self, key_id: str) -> bool:
        """True once this follower was told of the key."""
        return key_id in self.keys

    def is_revoked(self, key_id: str) -> bool:
        """True once this follower knows that the key has ended."""
        return key_id in self.keys and self.keys[key_id].is_revoked


@asynccontextmanager
async def follow(target: str) -> AsyncIterator[Follower]:
    """Follows a billing process until the block ends."""
    follower = Follower()
    async with grpc_edge.channel(target) as channel:
        stub = directory_pb2_grpc.DirectoryStub(channel)
        request = directory_pb2.WatchDirectoryRequest(follower="test")

        async def run() -> None:
            async for update in grpc_edge.follow("directory", lambda: stub.WatchDirectory(request)):
                follower.take(update)

        running = asyncio.create_task(run())
        try:
            yield follower
        finally:
            running.cancel()
            await asyncio.wait([running])
