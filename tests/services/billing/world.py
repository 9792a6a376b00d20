"""What billing's tests stand in: servers, billing processes, a publisher in the gateway's place.

The publisher is the only stand-in, at the wire: it sends the protobuf messages that a gateway
sends.
"""

import contextlib
import hashlib
import json
import secrets
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import nats
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from millrace.v1 import usage_pb2
from tests.fixtures.processes import ServiceProcess, StartService
from tests.fixtures.servers import NatsServer, PostgresServer
from tests.fixtures.wait import until
from wire import ids, subjects
from wire.usage_stream import ensure_usage_stream

ACK_WAIT_S = 1.0
"""Short, so that a batch that a killed process held comes back soon."""
SETTLED_WITHIN_S = 20.0


@dataclass
class Billing:
    """A billing process and, once it is ready, where it serves: it takes free ports itself."""

    process: ServiceProcess
    admin: httpx.AsyncClient
    http_url: str = ""
    grpc_target: str = ""
    metrics_url: str = ""

    async def until_ready(self) -> None:
        """Waits for the process and learns its addresses from its log."""
        await self.process.until_ready()
        lines = (
            json.loads(line) for line in self.process.log().splitlines() if line.startswith("{")
        )
        ready = next(line for line in lines if line["event"] == "billing_ready")
        self.http_url, self.grpc_target = ready["http_url"], ready["grpc_target"]
        self.metrics_url = ready["metrics_url"]
        self.admin.base_url = self.http_url

    async def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """A call of the admin API that must succeed."""
        response = await self.admin.request(method, f"/admin/v1{path}", json=body)
        assert response.is_success, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def create_team(self, name: str = "acme") -> str:
        """A team's id."""
        return str((await self.call("POST", "/teams", {"name": name}))["team_id"])

    async def create_key(self, team_id: str, name: str = "default") -> dict[str, Any]:
        """A key with its text."""
        return await self.call("POST", f"/teams/{team_id}/keys", {"name": name})

    async def set_price(
        self, model: str, uncached: str, cached: str, output: str
    ) -> dict[str, Any]:
        """A new price of a model."""
        body = {
            "input_usd_per_mtok": uncached,
            "cached_input_usd_per_mtok": cached,
            "output_usd_per_mtok": output,
        }
        return await self.call("PUT", f"/prices/{model}", body)


class World:
    """One database and one usage stream; starts billing on them and publishes events."""

    def __init__(
        self,
        nats_server: NatsServer,
        postgres_server: PostgresServer,
        database_url: str,
        start: StartService,
        folder: Path,
    ) -> None:
        self.nats_server = nats_server
        self.postgres_server = postgres_server
        self.database_url = database_url
        self.dsn = database_url.replace("+asyncpg", "")
        self.admin_key = f"admin-{secrets.token_urlsafe(24)}"
        self.mark = folder / "mutant-mark"
        self.nc: Client
        self._published_seq = 0
        self._start = start
        self._clients: list[httpx.AsyncClient] = []

    def launch(self, mutant: str | None = None) -> Billing:
        """Starts a process and does not wait for it."""
        env = {
            "NATS_URL": self.nats_server.url,
            "BILLING_DATABASE_URL": self.database_url,
            "BILLING_ADMIN_KEY_SHA256": hashlib.sha256(self.admin_key.encode()).hexdigest(),
            "BILLING_ACK_WAIT_S": str(ACK_WAIT_S),
            "OBSERVE_METRICS_PORT": "0",
            "MUTANT_MARK": str(self.mark),
        }
        admin = httpx.AsyncClient(
            headers={"authorization": f"Bearer {self.admin_key}"},
            timeout=20,
            trust_env=False,
        )
        self._clients.append(admin)
        return Billing(self._start("billing", env, mutant=mutant), admin)

    async def start(self, mutant: str | None = None) -> Billing:
        """Starts a process and waits until it is ready."""
        billing = self.launch(mutant)
        await billing.until_ready()
        return billing

    async def until_killed_itself(self, billing: Billing) -> None:
        """Returns when a `kill_*` patch has reached its point and SIGKILL has ended the process."""
        await until(
            lambda: billing.process.exit_code is not None,
            within_s=SETTLED_WITHIN_S,
            what="billing reaches the point where it is killed",
        )
        assert billing.process.exit_code == -9, billing.process.tail()
        assert self.mark.exists(), "the process died elsewhere: its point was not reached"

    async def publish(
        self, *batches: Sequence[usage_pb2.UsageEvent], message_ids: Sequence[str] = ()
    ) -> None:
        """Sends batches as a gateway does; each must be acknowledged by the broker as stored."""
        js = self.nc.jetstream()
        await ensure_usage_stream(js)
        for number, events in enumerate(batches):
            batch = usage_pb2.UsageBatch(batch_id=ids.new_request_id(), events=events)
            message_id = message_ids[number] if message_ids else batch.batch_id
            headers = {"Nats-Msg-Id": message_id}
            stored = await js.publish(
                subjects.USAGE_SUBJECT, batch.SerializeToString(), headers=headers
            )
            self._published_seq = max(self._published_seq, stored.seq)

    async def publish_bytes(self, payload: bytes) -> None:
        """Sends a message that no gateway would send."""
        await ensure_usage_stream(self.nc.jetstream())
        stored = await self.nc.jetstream().publish(subjects.USAGE_SUBJECT, payload)
        self._published_seq = max(self._published_seq, stored.seq)

    async def until_settled(self) -> None:
        """Returns when every message that this world published was acknowledged."""

        async def is_settled() -> bool:
            js = self.nc.jetstream()
            try:
                consumer = await js.consumer_info(subjects.USAGE_STREAM, subjects.USAGE_CONSUMER)
            except (NotFoundError, nats.errors.Error):
                return False
            # Not num_pending: the server may count a message there a little after it stored it.
            floor = consumer.ack_floor
            return floor is not None and floor.stream_seq >= self._published_seq

        await until(is_settled, within_s=SETTLED_WITHIN_S, what="every usage message acknowledged")

    @asynccontextmanager
    async def db(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection to billing's database."""
        connection = await asyncpg.connect(self.dsn)
        try:
            yield connection
        finally:
            await connection.close()

    async def value(self, query: str, *arguments: object) -> Any:
        """One value from billing's database."""
        async with self.db() as db:
            return await db.fetchval(query, *arguments)

    async def close(self) -> None:
        """Closes the clients; the processes belong to `start_service`."""
        for client in self._clients:
            await client.aclose()
        await self.nc.close()


@asynccontextmanager
async def open_world(
    nats_server: NatsServer,
    postgres_server: PostgresServer,
    database_url: str,
    start: StartService,
    folder: Path,
) -> AsyncIterator[World]:
    """A world with an empty stream."""
    world = World(nats_server, postgres_server, database_url, start, folder)
    world.nc = await nats.connect(nats_server.url, max_reconnect_attempts=-1)
    with contextlib.suppress(NotFoundError):
        await world.nc.jetstream().delete_stream(subjects.USAGE_STREAM)
    try:
        yield world
    finally:
        await world.close()


def usage_event(
    team_id: str,
    *,
    model: str = "smollm2",
    prompt: int = 100,
    cached: int = 40,
    completion: int = 7,
    occurred_at: datetime | None = None,
    request_id: str | None = None,
    seq: int = 0,
    key_id: str = "0123abcd",
) -> usage_pb2.UsageEvent:
    """An event as a gateway makes it."""
    event = usage_pb2.UsageEvent(
        request_id=request_id or ids.new_request_id(),
        seq=seq,
        team_id=team_id,
        key_id=key_id,
        model=model,
        cluster="local",
        pool="serverless",
        endpoint="chat.completions",
        outcome=usage_pb2.REQUEST_OUTCOME_COMPLETED,
        prompt_tokens=prompt,
        cached_tokens=cached,
        completion_tokens=completion,
        is_exact=True,
    )
    if occurred_at is None:
        event.occurred_at.GetCurrentTime()
    else:
        event.occurred_at.FromDatetime(occurred_at)
    return event


def identity(event: usage_pb2.UsageEvent) -> tuple[uuid.UUID, int]:
    """The event's key in the ledger."""
    return uuid.UUID(event.request_id), event.seq
