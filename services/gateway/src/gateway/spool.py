"""The usage outbox: from the moment a request is forwarded until JetStream has its usage event.

Invariant: every forwarded request leaves exactly one usage event per (request_id, seq), whatever
dies when. A request is opened on disk before it is forwarded, and its event is on disk before the
client can see the end of the answer. A start after a crash turns what is still open into
GATEWAY_LOST events, and publishes again, byte for byte and under the same batch id, what nobody had
acknowledged.

Records: O open, E event (ends an open one), R released (no upstream took the request up, there is
no event), B batch as it is published, A acknowledged batch id. No key, prompt or completion is ever
here.
"""

import asyncio
import fcntl
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import observe
from gateway.errors import SpoolLocked, SpoolUnavailable
from gateway.journal import Journal, Record
from gateway.progress import ProgressFile
from gateway.relay import Usage
from millrace.v1 import usage_pb2
from wire import ids

log = observe.get_logger(__name__)

COMPACT_ABOVE_BYTES = 4 << 20
"""The file is written anew beyond this, once less than half of it is still needed."""
KEEP_MOST_BYTES = 2 << 20
"""What is still needed is copied on the event loop: at most this much, about two milliseconds."""


class Ticket:
    """One opened request; ends in exactly one of `Spool.settle` and `Spool.release`."""

    def __init__(self, request_id: str, slot: int, progress: ProgressFile) -> None:
        self.request_id = request_id
        self.slot = slot
        self.is_open = True
        self._id_bytes = UUID(request_id).bytes
        self._progress = progress

    def note(self, usage: Usage) -> None:
        """Keeps what is certain by now, in case this process dies."""
        if self.is_open:
            self._progress.note(self.slot, self._id_bytes, usage)


class Spool:
    """Files in one folder, owned by one process. All methods are for the event loop's thread."""

    def __init__(self, folder: Path, *, max_bytes: int, max_in_flight: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(folder / "lock")
        self._max_bytes = max_bytes
        self._journal = Journal(folder)
        self._progress = ProgressFile(folder / "progress.map", max_in_flight)
        self._open: dict[str, bytes] = {}
        self._events: deque[bytes] = deque()
        self._batches: dict[str, bytes] = {}
        self._unwritten: deque[Record] = deque()
        self._needed_bytes = 0
        self._has_events = asyncio.Event()
        self._replay()

    @property
    def size_bytes(self) -> int:
        """Bytes in the file."""
        return self._journal.size_bytes

    @property
    def in_flight(self) -> int:
        """Requests opened and not ended."""
        return len(self._open)

    @property
    def waiting_events(self) -> int:
        """Events in no batch yet."""
        return len(self._events)

    @property
    def is_empty(self) -> bool:
        """True when JetStream has everything."""
        return not self._events and not self._batches

    def admit(self, event: usage_pb2.UsageEvent) -> Ticket:
        """Opens a request that is about to be forwarded; raises SpoolUnavailable or TooBusy."""
        if self.size_bytes > self._max_bytes:
            raise SpoolUnavailable(
                "Usage cannot be recorded now: too much of it waits for delivery. Try again later."
            )
        payload = event.SerializeToString()
        slot = self._progress.take(event.request_id)
        try:
            self._retry_unwritten()
            self._journal.append(Record(b"O", payload))
        except OSError as error:
            self._progress.give_back(slot)
            log.error("spool_write_failed", error=repr(error))
            raise SpoolUnavailable(
                "Usage cannot be recorded now: the gateway's disk refuses it. Try again later."
            ) from error
        self._open[event.request_id] = payload
        self._needed_bytes += len(payload)
        return Ticket(event.request_id, slot, self._progress)

    def settle(self, ticket: Ticket, event: usage_pb2.UsageEvent) -> None:
        """Ends a request with its event, which is on disk when this returns."""
        payload = event.SerializeToString()
        self._end(ticket)
        self._append(Record(b"E", payload))
        self._add_event(payload)

    def release(self, ticket: Ticket) -> None:
        """Ends a request that no upstream took up: there is nothing to bill."""
        self._end(ticket)
        self._append(Record(b"R", ticket.request_id.encode()))

    async def wait_for_events(self) -> None:
        """Returns when something can be published."""
        await self._has_events.wait()

    def next_batch(self, most_events: int) -> tuple[str, bytes] | None:
        """The batch to publish now, its id and bytes: the one not acknowledged yet, else a new
        one."""
        if self._batches:
            return next(iter(self._batches.items()))
        if not self._events:
            return None
        batch = usage_pb2.UsageBatch(batch_id=ids.new_request_id())
        for _ in range(min(most_events, len(self._events))):
            payload = self._events.popleft()
            self._needed_bytes -= len(payload)
            batch.events.append(usage_pb2.UsageEvent.FromString(payload))
        payload = batch.SerializeToString()
        # On disk before it is sent: after a crash the same bytes go out under the same id.
        self._append(Record(b"B", payload))
        self._batches[batch.batch_id] = payload
        self._needed_bytes += len(payload)
        return batch.batch_id, payload

    def acknowledge(self, batch_id: str) -> None:
        """JetStream has this batch."""
        self._needed_bytes -= len(self._batches.pop(batch_id))
        self._append(Record(b"A", batch_id.encode()))
        if self.is_empty:
            self._has_events.clear()
        is_large = self.size_bytes > min(COMPACT_ABOVE_BYTES, self._max_bytes // 2)
        is_worth_it = is_large and self.size_bytes > 2 * self._needed_bytes
        if is_worth_it and self._needed_bytes <= KEEP_MOST_BYTES and not self._unwritten:
            self._journal.replace(self._needed())

    def close(self) -> None:
        """Closes the files; what is in them is picked up by the next start."""
        self._journal.close()
        self._progress.close()
        os.close(self._lock)

    def _end(self, ticket: Ticket) -> None:
        assert ticket.is_open, f"request {ticket.request_id} was ended twice"
        ticket.is_open = False
        self._needed_bytes -= len(self._open.pop(ticket.request_id))
        self._progress.give_back(ticket.slot)

    def _append(self, record: Record) -> None:
        """Writes a record that may not be lost; while the disk refuses, it waits in memory, in
        order."""
        self._unwritten.append(record)
        try:
            self._retry_unwritten()
        except OSError as error:
            log.error("spool_write_failed", error=repr(error), waiting=len(self._unwritten))

    def _retry_unwritten(self) -> None:
        while self._unwritten:
            self._journal.append(self._unwritten[0])
            self._unwritten.popleft()

    def _add_event(self, payload: bytes) -> None:
        self._events.append(payload)
        self._needed_bytes += len(payload)
        self._has_events.set()

    def _needed(self) -> Iterator[Record]:
        for payload in self._batches.values():
            yield Record(b"B", payload)
        for payload in self._events:
            yield Record(b"E", payload)
        for payload in self._open.values():
            yield Record(b"O", payload)

    def _replay(self) -> None:
        events: dict[tuple[str, int], bytes] = {}
        opened: dict[str, bytes] = {}
        for record in self._journal.read():
            match record.kind:
                case b"O":
                    event = usage_pb2.UsageEvent.FromString(record.payload)
                    opened[event.request_id] = record.payload
                case b"E":
                    event = usage_pb2.UsageEvent.FromString(record.payload)
                    opened.pop(event.request_id, None)
                    events[event.request_id, event.seq] = record.payload
                case b"R":
                    opened.pop(record.payload.decode(), None)
                case b"B":
                    batch = usage_pb2.UsageBatch.FromString(record.payload)
                    self._batches[batch.batch_id] = record.payload
                    for event in batch.events:
                        events.pop((event.request_id, event.seq), None)
                case b"A":
                    self._batches.pop(record.payload.decode(), None)
                case _:
                    log.error("spool_record_unknown", kind=record.kind.hex())
        for payload in events.values():
            self._add_event(payload)
        self._needed_bytes += sum(len(payload) for payload in self._batches.values())
        self._bury(opened)
        if not self.is_empty:
            self._has_events.set()

    def _bury(self, opened: dict[str, bytes]) -> None:
        """Gives each request that an earlier process left open its event."""
        left_behind = self._progress.left_behind()
        for request_id, payload in opened.items():
            event = usage_pb2.UsageEvent.FromString(payload)
            usage = left_behind.get(request_id, Usage())
            event.outcome = usage_pb2.REQUEST_OUTCOME_GATEWAY_LOST
            event.prompt_tokens = usage.prompt_tokens
            event.cached_tokens = usage.cached_tokens
            event.completion_tokens = usage.completion_tokens
            event.is_exact = False
            buried = event.SerializeToString()
            self._append(Record(b"E", buried))
            self._add_event(buried)
            log.warning("request_lost_by_crash", request_id=request_id)
        self._progress.clear()


def _lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise SpoolLocked(
            f"{path} is held by another gateway: give each its own GATEWAY_SPOOL_DIR."
        ) from error
    return descriptor
