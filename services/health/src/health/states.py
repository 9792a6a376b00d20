"""Which process is alive, decided from registry events and a clock; no I/O.

Invariant (fail static): a process goes DOWN only on evidence that was gathered while the broker was
heard. Losing the broker, restarting it, or its standing still for a while takes nobody out: it puts
everybody in doubt, each is cleared by its next beat, and only those that stay silent for two TTLs
while the broker is heard go DOWN. Without doubt, the end of a lease is believed at once.

The broker counts as heard while events arrive: health beats itself, so a sound watch is never
silent for longer than one beat.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from millrace.v1 import fleet_pb2
from wire import subjects

DOUBT_S = 2 * subjects.REGISTRY_TTL_S
"""A doubted process that does not beat for this long after the broker came back is DOWN."""
SILENCE_S = 3.5
"""A broker that stood still for longer than TTL minus one beat (4 s) may have ended leases of the
living; this is below that, and above a beat that comes late."""
DOWN_KEPT_S = 600.0
"""Operators see a process for this long after it went DOWN."""
DOWN_KEPT_MOST = 256
"""Bounds what a process in a restart loop can fill: the longest gone are forgotten first."""

State: TypeAlias = "fleet_pb2.ServiceState.ValueType"
STARTING, READY, DRAINING, DOWN = (
    fleet_pb2.SERVICE_STATE_STARTING,
    fleet_pb2.SERVICE_STATE_READY,
    fleet_pb2.SERVICE_STATE_DRAINING,
    fleet_pb2.SERVICE_STATE_DOWN,
)


@dataclass(frozen=True)
class Instant:
    """One reading of both clocks: decisions use the monotonic one, operators read the other."""

    monotonic_s: float
    wall_s: float


@dataclass(frozen=True)
class Member:
    """One process as health knows it."""

    record: fleet_pb2.ServiceRecord
    state: State
    changed_at: Instant
    doubt_ends_s: float | None = None
    """Monotonic: without a beat until then it goes DOWN. None: its lease is believed."""


@dataclass(frozen=True)
class Fleet:
    """Every known process, by registry key; `revision` grows when anything visible changes."""

    members: Mapping[str, Member] = field(default_factory=dict)
    revision: int = 0
    heard_at_s: float | None = None
    """When the watch last said anything; None before it ever did."""
    is_synced: bool = False
    """True once the present state of the registry has been read whole."""


def seen(fleet: Fleet, key: str, record: fleet_pb2.ServiceRecord, now: Instant) -> Fleet:
    """The fleet after a beat of `key`."""
    fleet = _heard(fleet, now)
    claimed = record.state if record.state in (READY, DRAINING) else STARTING
    known = fleet.members.get(key)
    changed_at = known.changed_at if known is not None and known.state == claimed else now
    member = Member(record, claimed, changed_at)
    is_news = known is None or known.state != claimed or known.record != record
    return _put(fleet, {key: member}, is_news)


def gone(fleet: Fleet, key: str, now: Instant) -> Fleet:
    """The fleet after the broker said that the lease of `key` ended or was given up."""
    fleet = _heard(fleet, now)
    member = fleet.members.get(key)
    if member is None or member.state == DOWN or member.doubt_ends_s is not None:
        return fleet
    return _put(fleet, {key: _down(member, now)}, is_news=True)


def synced(fleet: Fleet, now: Instant) -> Fleet:
    """The fleet after a watch has sent the present state whole, at start or after a reconnect."""
    fleet = _heard(fleet, now)
    if not fleet.is_synced:
        return replace(fleet, is_synced=True)
    # A restarted broker has lost the registry and tells of no end of any lease.
    return _doubt_all(fleet, now)


def advance(fleet: Fleet, now: Instant) -> Fleet:
    """The fleet after time has passed: doubts that ran out, and the long gone forgotten."""
    fleet = _forget(fleet, now)
    if fleet.heard_at_s is None or now.monotonic_s - fleet.heard_at_s > SILENCE_S:
        return fleet
    silent = {
        key: _down(member, now)
        for key, member in fleet.members.items()
        if member.doubt_ends_s is not None and now.monotonic_s >= member.doubt_ends_s
    }
    return _put(fleet, silent, is_news=True) if silent else fleet


def _heard(fleet: Fleet, now: Instant) -> Fleet:
    was_silent = fleet.heard_at_s is not None and now.monotonic_s - fleet.heard_at_s > SILENCE_S
    if was_silent:
        fleet = _doubt_all(fleet, now)
    return replace(fleet, heard_at_s=now.monotonic_s)


def _doubt_all(fleet: Fleet, now: Instant) -> Fleet:
    ends_s = now.monotonic_s + DOUBT_S
    doubted = {
        key: replace(member, doubt_ends_s=ends_s)
        for key, member in fleet.members.items()
        if member.state != DOWN
    }
    return _put(fleet, doubted, is_news=False)


def _down(member: Member, now: Instant) -> Member:
    return Member(member.record, DOWN, now)


def _forget(fleet: Fleet, now: Instant) -> Fleet:
    down = sorted(
        (key for key, member in fleet.members.items() if member.state == DOWN),
        key=lambda key: (-fleet.members[key].changed_at.monotonic_s, key),
    )
    old = {
        key
        for rank, key in enumerate(down)
        if rank >= DOWN_KEPT_MOST
        or now.monotonic_s - fleet.members[key].changed_at.monotonic_s > DOWN_KEPT_S
    }
    if not old:
        return fleet
    kept = {key: member for key, member in fleet.members.items() if key not in old}
    return replace(fleet, members=kept, revision=fleet.revision + 1)


def _put(fleet: Fleet, members: Mapping[str, Member], is_news: bool) -> Fleet:
    return replace(
        fleet, members={**fleet.members, **members}, revision=fleet.revision + int(is_news)
    )
