"""The usage spool over every kind of death: what was promised is there, once."""

import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import nats
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.errors import SpoolLocked, SpoolUnavailable, TooBusy
from gateway.relay import Usage
from gateway.spool import Spool
from millrace.v1 import usage_pb2
from tests.fixtures.servers import NatsServer
from tests.fixtures.wait import until
from tests.services.gateway.world import World
from wire import ids, subjects

COMPLETED = usage_pb2.REQUEST_OUTCOME_COMPLETED
LOST = usage_pb2.REQUEST_OUTCOME_GATEWAY_LOST


@contextmanager
def opened(folder: Path, *, max_bytes: int = 1 << 20, max_in_flight: int = 16) -> Iterator[Spool]:
    """A spool that is closed as a killed process leaves it: nothing is tidied up."""
    spool = Spool(folder, max_bytes=max_bytes, max_in_flight=max_in_flight)
    try:
        yield spool
    finally:
        spool.close()


def settle_many(spool: Spool, count: int) -> None:
    """Requests that are forwarded and end."""
    for _ in range(count):
        event = new_event()
        spool.settle(spool.admit(event), completed(event, 1))


def admit_many(spool: Spool, count: int) -> None:
    """Requests that are forwarded and go on."""
    for _ in range(count):
        spool.admit(new_event())


def new_event(team_id: str = "t") -> usage_pb2.UsageEvent:
    """An event as it is when its request is forwarded."""
    event = usage_pb2.UsageEvent(request_id=ids.new_request_id(), team_id=team_id, model="m")
    event.occurred_at.GetCurrentTime()
    return event


def completed(event: usage_pb2.UsageEvent, tokens: int) -> usage_pb2.UsageEvent:
    """The same event at its end."""
    ended = usage_pb2.UsageEvent()
    ended.CopyFrom(event)
    ended.outcome, ended.completion_tokens, ended.is_exact = COMPLETED, tokens, True
    return ended


def drain(spool: Spool, most_events: int = 100) -> list[usage_pb2.UsageEvent]:
    """Everything that the spool wants published, acknowledged."""
    found: list[usage_pb2.UsageEvent] = []
    while (batch := spool.next_batch(most_events)) is not None:
        found.extend(usage_pb2.UsageBatch.FromString(batch[1]).events)
        spool.acknowledge(batch[0])
    return found


def test_a_settled_request_is_published_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        event = new_event()
        spool.settle(spool.admit(event), completed(event, 7))

    with opened(tmp_path) as spool:
        assert drain(spool) == [completed(event, 7)]

    with opened(tmp_path) as spool:
        assert drain(spool) == []


def test_an_open_request_becomes_lost_with_what_was_noted(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        event = new_event()
        ticket = spool.admit(event)
        ticket.note(Usage(completion_tokens=3))
        ticket.note(Usage(prompt_tokens=12, cached_tokens=4, completion_tokens=9))

    with opened(tmp_path, max_in_flight=2) as spool:
        [found] = drain(spool)

    assert (found.request_id, found.outcome, found.is_exact) == (event.request_id, LOST, False)
    assert (found.prompt_tokens, found.cached_tokens, found.completion_tokens) == (12, 4, 9)
    with opened(tmp_path) as spool:
        assert drain(spool) == []


def test_a_released_request_leaves_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        spool.release(spool.admit(new_event()))
        assert drain(spool) == []

    with opened(tmp_path) as spool:
        assert drain(spool) == []


def test_an_unacknowledged_batch_comes_again_under_its_id_and_byte_for_byte(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as spool:
        for tokens in range(5):
            event = new_event()
            spool.settle(spool.admit(event), completed(event, tokens))
        batch = spool.next_batch(3)
        assert spool.next_batch(3) == batch

    with opened(tmp_path) as spool:
        assert spool.next_batch(3) == batch
        spool.acknowledge(batch[0] if batch else "")
        assert len(drain(spool)) == 2


def test_a_request_is_ended_once(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        event = new_event()
        ticket = spool.admit(event)
        spool.settle(ticket, completed(event, 1))

        with pytest.raises(AssertionError, match="ended twice"):
            spool.release(ticket)


def test_requests_in_flight_are_bounded(tmp_path: Path) -> None:
    with opened(tmp_path, max_in_flight=2) as spool:
        tickets = [spool.admit(new_event()) for _ in range(2)]

        with pytest.raises(TooBusy):
            spool.admit(new_event())
        spool.release(tickets[0])
        spool.admit(new_event())

        assert spool.in_flight == 2


def test_a_late_note_does_not_touch_the_slots_next_owner(tmp_path: Path) -> None:
    with opened(tmp_path, max_in_flight=1) as spool:
        first = spool.admit(new_event())
        spool.release(first)
        second = spool.admit(new_event())
        second.note(Usage(completion_tokens=2))
        first.note(Usage(completion_tokens=99))

    with opened(tmp_path) as spool:
        [found] = drain(spool)

    assert (found.request_id, found.completion_tokens) == (second.request_id, 2)


def test_the_file_stays_small(tmp_path: Path) -> None:
    with opened(tmp_path, max_bytes=20_000) as spool:
        kept = new_event()
        spool.admit(kept)
        for _ in range(1_000):
            event = new_event()
            spool.settle(spool.admit(event), completed(event, 1))
            drain(spool)
        assert spool.size_bytes < 20_000

    assert len(list(tmp_path.glob("usage-*"))) == 1
    with opened(tmp_path) as spool:
        assert [event.request_id for event in drain(spool)] == [kept.request_id]


def test_beyond_its_cap_it_refuses_until_delivery_goes_on(tmp_path: Path) -> None:
    with opened(tmp_path, max_bytes=2_000) as spool:
        with pytest.raises(SpoolUnavailable):
            settle_many(spool, 100)
        assert len(drain(spool)) > 3

        spool.admit(new_event())


@contextmanager
def files_limited_to(size_bytes: int) -> Iterator[None]:
    """The kernel refuses to let files grow beyond this, as a full disk would."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("room", range(0, 120, 7))
def test_a_disk_that_refuses_costs_no_event(tmp_path: Path, room: int) -> None:
    with opened(tmp_path) as spool:
        # Larger than any file that pytest itself writes to meanwhile.
        spool.release(spool.admit(new_event(team_id="t" * 400_000)))
        event = new_event()
        ticket = spool.admit(event)
        with files_limited_to(spool.size_bytes + room):
            spool.settle(ticket, completed(event, 5))
            with pytest.raises(SpoolUnavailable):
                admit_many(spool, 5)
        open_now = spool.in_flight
        other = new_event()
        spool.settle(spool.admit(other), completed(other, 6))

    with opened(tmp_path) as spool:
        events = drain(spool)

    exact = [event for event in events if event.outcome == COMPLETED]
    assert [event.completion_tokens for event in exact] == [5, 6]
    assert len(events) == 2 + open_now
    assert not list(tmp_path.glob("*.torn"))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cut=st.integers(0, 3_000), garbage=st.binary(max_size=40))
def test_a_torn_end_costs_only_what_was_being_written(
    tmp_path_factory: pytest.TempPathFactory, cut: int, garbage: bytes
) -> None:
    """The file is cut anywhere, as by a death of the machine: no event twice, none made up."""
    folder = tmp_path_factory.mktemp("torn")
    with opened(folder) as spool:
        requests = [new_event() for _ in range(8)]
        tickets = [spool.admit(event) for event in requests]
        whole_at = {}
        for tokens, (ticket, event) in enumerate(zip(tickets[:6], requests[:6], strict=True)):
            spool.settle(ticket, completed(event, tokens))
            whole_at[event.request_id] = spool.size_bytes
        size_bytes = spool.size_bytes
    [path] = folder.glob("usage-*.spool")
    cut = min(cut, size_bytes)
    path.write_bytes(path.read_bytes()[:cut] + garbage)

    with opened(folder) as spool:
        events = drain(spool)

    found = [event.request_id for event in events]
    assert len(found) == len(set(found))
    assert set(found) <= {event.request_id for event in requests}
    exact = {event.request_id for event in events if event.is_exact}
    assert exact == {request_id for request_id, at in whole_at.items() if at <= cut}


def test_a_folder_has_one_owner(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(SpoolLocked, match="GATEWAY_SPOOL_DIR"), opened(tmp_path):
        pass


@pytest.fixture
async def bare_nats(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A NATS server without any stream."""
    server = NatsServer(tmp_path)
    server.start()
    yield server
    server.stop()


async def test_a_gateway_that_is_first_makes_the_stream(
    world: World, bare_nats: NatsServer, tmp_path: Path
) -> None:
    spool_dir = tmp_path / "left-behind"
    with opened(spool_dir) as spool:
        event = new_event()
        spool.settle(spool.admit(event), completed(event, 7))

    nc = await nats.connect(bare_nats.url)
    try:
        with world.gateway(spool_dir=spool_dir, env={"NATS_URL": bare_nats.url}):

            async def published() -> list[usage_pb2.UsageEvent]:
                try:
                    message = await nc.jetstream().get_msg(subjects.USAGE_STREAM, 1)
                except nats.js.errors.NotFoundError:
                    return []
                return list(usage_pb2.UsageBatch.FromString(message.data or b"").events)

            assert await until(published) == [completed(event, 7)]
    finally:
        await nc.close()
