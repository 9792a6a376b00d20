"""What the gateway's tests stand in: its own NATS, a database, billing, health, scripted
upstreams."""

import asyncio
import hashlib
import itertools
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from millrace.v1 import fleet_pb2, usage_pb2
from tests.fixtures.processes import ServiceProcess, start_service
from tests.fixtures.servers import NatsServer
from tests.fixtures.wait import until
from tests.services.gateway.scripted_upstream import ScriptedUpstream
from wire import heartbeat, ids, subjects

CONTEXT_TOKENS = 4096
LEDGER_WITHIN_S = 15.0


@dataclass
class Key:
    """A team's key as the admin API made it."""

    team_id: str
    key_id: str
    text: str


@dataclass
class Gateway:
    """A gateway process and where it serves."""

    process: ServiceProcess
    url: str
    spool_dir: Path

    def client(self, key: Key | None = None, **options: Any) -> httpx.AsyncClient:
        """An HTTP client of this gateway."""
        headers = {"authorization": f"Bearer {key.text}"} if key else {}
        options.setdefault("timeout", 30)
        return httpx.AsyncClient(base_url=self.url, headers=headers, trust_env=False, **options)

    async def until_serving(self) -> None:
        """Returns when the process serves HTTP."""
        await until(lambda: '"serving"' in self.process.log(), within_s=20, what="gateway serves")

    async def until_ready(self) -> None:
        """Returns when completions can be served; asks the gateway itself, so NATS may be away."""
        async with self.client() as http:

            async def is_ready() -> bool:
                assert self.process.exit_code is None, self.process.tail()
                try:
                    return (await http.get("/readyz")).status_code == 200
                except httpx.TransportError:
                    return False

            await until(is_ready, within_s=20, what="gateway ready")


@dataclass
class World:
    """The neighbours; starts gateways among them and reads what became of usage."""

    nats: NatsServer
    nc: Client
    database_url: str
    folder: Path
    free_port: Callable[[], int]
    admin_key: str = field(default_factory=lambda: f"admin-{secrets.token_urlsafe(24)}")
    billing: ServiceProcess = field(init=False)
    health: ServiceProcess = field(init=False)
    _counter: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.billing_http, self.billing_grpc = self.free_port(), self.free_port()
        self.health_grpc = self.free_port()
        self._read_through = 0
        self._events: list[usage_pb2.UsageEvent] = []

    def start_billing(self) -> None:
        """Starts billing on its ports; also after it was killed."""
        digest = hashlib.sha256(self.admin_key.encode()).hexdigest()
        self.billing = self._start(
            "billing",
            {
                "BILLING_DATABASE_URL": self.database_url,
                "BILLING_HTTP_PORT": str(self.billing_http),
                "BILLING_GRPC_PORT": str(self.billing_grpc),
                "BILLING_ADMIN_KEY_SHA256": digest,
            },
        )

    def start_health(self) -> None:
        """Starts health on its port; also after it was killed."""
        self.health = self._start("health", {"HEALTH_GRPC_PORT": str(self.health_grpc)})

    @contextmanager
    def gateway(
        self,
        *,
        spool_dir: Path | None = None,
        mutant: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Iterator[Gateway]:
        """A gateway process; killed at the end unless the test ended it."""
        port = self.free_port()
        spool_dir = spool_dir or self.folder / f"spool-{next(self._counter)}"
        process = self._start(
            "gateway",
            {
                "GATEWAY_HTTP_PORT": str(port),
                "GATEWAY_SPOOL_DIR": str(spool_dir),
                "BILLING_TARGET": f"127.0.0.1:{self.billing_grpc}",
                "HEALTH_TARGET": f"127.0.0.1:{self.health_grpc}",
                **(env or {}),
            },
            mutant=mutant,
        )
        with process:
            yield Gateway(process, f"http://127.0.0.1:{port}", spool_dir)

    @asynccontextmanager
    async def attached(
        self, *models: str, port: int = 0, pool: str = "serverless"
    ) -> AsyncIterator[ScriptedUpstream]:
        """A scripted upstream that is in the registry as long as the context lasts."""
        async with ScriptedUpstream().serve(port) as upstream:
            record = heartbeat.new_record("upstream", ids.new_instance("upstream"), "local", "1")
            record.state = fleet_pb2.SERVICE_STATE_READY
            record.http_url = upstream.url
            for model in models:
                record.models.add(name=model, pool=pool, context_tokens=CONTEXT_TOKENS)
            beating = asyncio.create_task(heartbeat.Heartbeat(self.nc, lambda: record).run())
            try:
                yield upstream
            finally:
                beating.cancel()
                await asyncio.wait([beating])

    async def admin(self, method: str, path: str, body: object = None) -> Any:
        """A call of billing's admin API that must succeed."""
        headers = {"authorization": f"Bearer {self.admin_key}"}
        url = f"http://127.0.0.1:{self.billing_http}"
        async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False) as http:
            response = await http.request(method, f"/admin/v1{path}", json=body)
        assert response.is_success, response.text
        return response.json()

    async def new_key(self) -> Key:
        """A new team with one key."""
        team = await self.admin("POST", "/teams", {"name": f"team-{secrets.token_hex(4)}"})
        key = await self.admin("POST", f"/teams/{team['team_id']}/keys", {"name": "test"})
        return Key(team["team_id"], key["key_id"], key["key"])

    async def set_price(self, model: str) -> None:
        """One dollar for a million uncached tokens, a tenth for cached ones, two for output."""
        body = {
            "input_usd_per_mtok": "1",
            "cached_input_usd_per_mtok": "0.1",
            "output_usd_per_mtok": "2",
        }
        await self.admin("PUT", f"/prices/{model}", body)

    async def stream_events(self, request_id: str) -> list[usage_pb2.UsageEvent]:
        """Every event of this request in the JetStream stream, duplicates included."""
        js = self.nc.jetstream()
        try:
            state = (await js.stream_info(subjects.USAGE_STREAM)).state
        except NotFoundError:
            return []
        for number in range(max(self._read_through + 1, state.first_seq), state.last_seq + 1):
            message = await js.get_msg(subjects.USAGE_STREAM, number)
            assert message.data is not None
            self._events.extend(usage_pb2.UsageBatch.FromString(message.data).events)
            self._read_through = number
        return [event for event in self._events if event.request_id == request_id]

    async def the_event(self, request_id: str) -> usage_pb2.UsageEvent:
        """The one event of this request, once it is in the stream and in the ledger's events."""
        await until(lambda: self.ledger_rows(request_id), within_s=LEDGER_WITHIN_S, what=request_id)
        events = await self.stream_events(request_id)
        rows = await self.ledger_rows(request_id)
        assert len(events) == 1, f"{len(events)} events of one request: {events}"
        assert len(rows) == 1, f"{len(rows)} rows of one request"
        assert rows[0]["completion_tokens"] == events[0].completion_tokens
        return events[0]

    async def ledger_rows(self, request_id: str) -> list[asyncpg.Record]:
        """What billing has booked for this request."""
        dsn = self.database_url.replace("+asyncpg", "")
        connection = await asyncpg.connect(dsn)
        try:
            query = "SELECT * FROM usage_event WHERE request_id = $1::text::uuid"
            return list(await connection.fetch(query, request_id))
        finally:
            await connection.close()

    def _start(
        self, name: str, env: Mapping[str, str], mutant: str | None = None
    ) -> ServiceProcess:
        log = self.folder / f"{name}-{next(self._counter)}.log"
        return start_service(name, {"NATS_URL": self.nats.url, **env}, log=log, mutant=mutant)


def chat(script: str = "", model: str = "scripted", **fields: Any) -> dict[str, Any]:
    """A chat request whose last message is the upstream's script."""
    messages = [{"role": "user", "content": script or "chunks=5"}]
    return {"model": model, "messages": messages, **fields}


async def ask(gateway: Gateway, key: Key, script: str = "", *, is_stream: bool = False) -> str:
    """Sends a request that must succeed and returns its id."""
    async with gateway.client(key) as http:
        response = await http.post("/v1/chat/completions", json=chat(script, stream=is_stream))
    assert response.status_code == 200, response.text
    if is_stream:
        assert response.content.endswith(b"data: [DONE]\n\n")
    return str(response.headers["x-request-id"])
