"""The cluster's workers as the router sees them: Dynamo's discovery, KV index and request plane.

Invariant: a request is only ever sent to a worker that discovery lists, the registry does not call
draining, and that did not just fail. A failed connection evicts its worker at once, because a dead
instance stays in discovery for about ten seconds.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from dynamo.llm import KvRouter, KvRouterConfig
from dynamo.llm.exceptions import (
    Cancelled,
    DynamoException,
    EngineShutdown,
    InvalidArgument,
)
from dynamo.runtime import DistributedRuntime

import observe
from router.control import WorkerControls
from router.errors import InvalidRequest, WorkerFailed
from router.pick import DecodeCandidate, usable

log = observe.get_logger(__name__)

Kind = Literal["prefill", "decode"]
COMPONENTS: dict[Kind, str] = {"prefill": "prefill", "decode": "backend"}
SUSPECT_S = 10.0
"""How long a worker that refused is avoided while there are others."""
GONE_S = 3.0
"""How long a worker that could not be reached gets nothing at all. Discovery needs about ten
seconds to drop a dead one; until then each further try costs one refused connection every three
seconds."""
INDEX_RETRY_S = 0.2


@dataclass
class Pool:
    """The workers of one kind: their client, and the KV index once a first worker is there."""

    kind: Kind
    client: Any
    index: Any = None


class Workers:
    """Chooses workers and sends requests to them."""

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.draining: set[int] = set()
        self.controls = WorkerControls()
        self._pools: dict[Kind, Pool] = {}
        self._suspects: dict[int, float] = {}
        self._gone: dict[int, float] = {}
        self._active: dict[int, int] = {}

    async def open(self, runtime: DistributedRuntime, namespace: str) -> None:
        """Connects to discovery; workers may come and go afterwards."""
        for kind, component in COMPONENTS.items():
            endpoint = runtime.endpoint(f"{namespace}.{component}.generate")
            self._pools[kind] = Pool(kind, await endpoint.client())

    async def follow_indexes(self, runtime: DistributedRuntime, namespace: str) -> None:
        """Starts each kind's KV index as soon as its first worker is there."""
        async with asyncio.TaskGroup() as tasks:
            for kind, component in COMPONENTS.items():
                endpoint = runtime.endpoint(f"{namespace}.{component}.generate")
                tasks.create_task(self._start_index(self._pools[kind], endpoint))

    async def _start_index(self, pool: Pool, endpoint: Any) -> None:
        await pool.client.wait_for_instances()
        while pool.index is None:
            try:
                pool.index = await asyncio.to_thread(
                    KvRouter, endpoint, self.block_tokens, KvRouterConfig()
                )
            except DynamoException as error:
                log.warning("kv_index_not_started", kind=pool.kind, error=str(error))
                await asyncio.sleep(INDEX_RETRY_S)
        log.info("kv_index_started", kind=pool.kind)

    def alive(self, kind: Kind) -> list[int]:
        """Workers of this kind that may get a request now."""
        return usable(
            self._pools[kind].client.instance_ids(),
            self.draining,
            _unexpired(self._gone),
            _unexpired(self._suspects),
        )

    @contextmanager
    def occupied(self, worker_id: int) -> Iterator[None]:
        """Counts a request on a decode worker; enter it in the same step as the choice."""
        self._active[worker_id] = self._active.get(worker_id, 0) + 1
        try:
            yield
        finally:
            self._active[worker_id] -= 1
            if not self._active[worker_id]:
                del self._active[worker_id]

    def note_failure(self, failure: WorkerFailed) -> None:
        """Avoids a worker that just failed."""
        until = time.monotonic() + (GONE_S if failure.is_gone else SUSPECT_S)
        (self._gone if failure.is_gone else self._suspects)[failure.worker_id] = until

    def trust(self, worker_id: int) -> None:
        """Ends a suspicion: the worker has answered."""
        self._suspects.pop(worker_id, None)
        self._gone.pop(worker_id, None)

    async def choose_prefill(self, prompt: tuple[int, ...], request_id: str) -> int | None:
        """Dynamo's choice by cached prefix and queued work; None when no worker may be used.

        The request counts as load on the chosen worker until `release_prefill`.
        """
        alive, index = self.alive("prefill"), self._pools["prefill"].index
        if not alive or index is None:
            return alive[0] if alive else None
        try:
            worker_id, _, _ = await index.best_worker(list(prompt), request_id=request_id)
        except DynamoException as error:
            log.warning("kv_index_choice_failed", error=str(error))
            return alive[0]
        if worker_id in alive:
            return int(worker_id)
        # The index does not know of draining and suspicion: take the least loaded of the others.
        await self.release_prefill(request_id)
        loads = await index.get_potential_loads(list(prompt))
        queued = {load["worker_id"]: load["potential_prefill_tokens"] for load in loads}
        return min(alive, key=lambda worker: (queued.get(worker, 0), worker))

    async def release_prefill(self, request_id: str) -> None:
        """Tells the index that a prefill is over."""
        index = self._pools["prefill"].index
        if index is None:
            return
        try:
            await index.free(request_id)
        except DynamoException as error:
            log.debug("kv_index_free_failed", error=str(error))

    async def decode_candidates(self, prompt: tuple[int, ...]) -> list[DecodeCandidate]:
        """Every decode worker that may be used, with its cached prefix and load."""
        alive, index = self.alive("decode"), self._pools["decode"].index
        overlaps: dict[int, int] = {}
        blocks: dict[int, int] = {}
        if alive and index is not None:
            scores = await index.get_overlap_scores(list(prompt))
            overlaps = {row["worker_id"]: _device_blocks(row) for row in scores["workers"]}
            loads = await index.get_potential_loads(list(prompt))
            blocks = {load["worker_id"]: load["potential_decode_blocks"] for load in loads}
        return [
            DecodeCandidate(
                worker, overlaps.get(worker, 0), self._active.get(worker, 0), blocks.get(worker, 0)
            )
            for worker in alive
        ]

    async def stream(
        self, kind: Kind, worker_id: int, request: dict[str, Any], context: Any
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Sends a request to this worker and yields its chunks.

        Raises WorkerFailed when the worker was lost or refused, InvalidRequest when it found the
        request itself at fault. A cancelled context simply ends the stream.
        """
        try:
            open_stream: Callable[..., Awaitable[AsyncIterator[Any]]] = self._pools[
                kind
            ].client.direct
            async for chunk in await open_stream(
                request, worker_id, annotated=False, context=context
            ):
                if error := chunk.get("error"):
                    raise WorkerFailed(str(error), worker_id, is_gone=False)
                yield chunk
            self.trust(worker_id)
        except InvalidArgument as error:
            raise InvalidRequest(str(error)) from error
        except Cancelled:
            return
        except EngineShutdown as error:
            # A refusal (draining) or the last word of a dying engine.
            raise WorkerFailed(str(error), worker_id, is_gone=False) from error
        except (WorkerFailed, asyncio.CancelledError):
            raise
        except Exception as error:
            # Dynamo 1.6 raises bare Exception and ValueError for lost connections ("Unavailable:
            # ...").
            raise WorkerFailed(repr(error), worker_id, is_gone=True) from error


def _unexpired(until: dict[int, float]) -> set[int]:
    """The workers whose time is not over; the others are forgotten."""
    now = time.monotonic()
    for worker in [worker for worker, at in until.items() if at <= now]:
        del until[worker]
    return set(until)


def _device_blocks(row: dict[str, Any]) -> int:
    """Cached prefix blocks in the worker's own KV memory."""
    return int(row.get("device_blocks", row.get("device_overlap_blocks", 0)) or 0)
