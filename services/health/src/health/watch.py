"""The loop around the decisions: registry and cordon events in, lists and route tables out."""

import asyncio
import time
from contextlib import aclosing

from nats.aio.client import Client

import observe
from health import metrics, routes, states, store
from health.board import Board
from health.errors import CordonNotKept, InstanceMissing, InstanceUnknown
from millrace.v1 import fleet_pb2
from wire import registry

log = observe.get_logger(__name__)

TICK_S = 0.25
SETTLE_S = 2.5
"""After its first look health publishes nothing for one beat and a bit: when NATS was restarted
together with health the registry is still empty, and an empty table would turn clients away."""
PRUNE_AFTER_S = states.DOWN_KEPT_S
"""A cordon of a process that nobody knows any more is dropped, but not before health has run for
this long: it may just not have beaten yet."""


class FleetWatch:
    """The fleet as this process knows it, and the boards that show it."""

    def __init__(self, nc: Client) -> None:
        self.route_board: Board[fleet_pb2.RouteTable] = Board()
        self.service_board: Board[fleet_pb2.ServiceList] = Board()
        self.has_settled = asyncio.Event()
        self._nc = nc
        self._fleet = states.Fleet()
        self._cordoned: frozenset[str] = frozenset()
        self._has_registry = asyncio.Event()
        self._has_cordons = asyncio.Event()
        self._published: tuple[int, frozenset[str]] | None = None

    async def follow_registry(self) -> None:
        """Applies every registry event, for ever."""
        async with aclosing(registry.follow(self._nc)) as changes:
            async for change in changes:
                now = _now()
                if change is None:
                    metrics.BROKER_SYNCS.inc()
                    log.info("registry_read", known=len(self._fleet.members))
                    self._become(states.synced(self._fleet, now))
                    self._has_registry.set()
                elif change.record is None:
                    self._become(states.gone(self._fleet, change.key, now))
                else:
                    self._become(states.seen(self._fleet, change.key, change.record, now))

    async def follow_cordons(self) -> None:
        """Applies every cordon event, for ever; a reread bucket replaces what was known."""
        present: set[str] = set()
        async with aclosing(store.follow_cordons(self._nc)) as changes:
            async for change in changes:
                if change is None:
                    self._cordoned = frozenset(present)
                    self._has_cordons.set()
                    present = set()
                else:
                    (present.add if change.is_cordoned else present.discard)(change.instance)
                    self._set_cordoned(change.instance, change.is_cordoned)
                self._publish()

    async def keep_time(self) -> None:
        """Lets doubts run out, for ever, and opens the boards once the first look has settled."""
        await self._has_registry.wait()
        await self._has_cordons.wait()
        await asyncio.sleep(SETTLE_S)
        self.has_settled.set()
        self._publish()
        settled_s = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            self._become(states.advance(self._fleet, _now()))
            if time.monotonic() - settled_s > PRUNE_AFTER_S:
                settled_s = time.monotonic()
                await self._prune_cordons()

    async def cordon(
        self, request: fleet_pb2.CordonRequest, *, is_cordoned: bool
    ) -> fleet_pb2.ServiceStatus:
        """Writes or removes a cordon and returns the status that watchers now see."""
        member = self._member(request.instance)
        if is_cordoned:
            await store.keep_cordon(self._nc, request)
        else:
            await store.drop_cordon(self._nc, request.instance)
        log.info(
            "cordon_changed",
            of=request.instance,
            is_cordoned=is_cordoned,
            reason=request.reason,
        )
        self._set_cordoned(request.instance, is_cordoned)
        self._publish()
        return routes.status(member, self._cordoned)

    def _member(self, instance: str) -> states.Member:
        if not instance or any(c in ". *>\t" for c in instance):
            raise InstanceMissing(instance)
        for member in self._fleet.members.values():
            if member.record.instance == instance:
                return member
        raise InstanceUnknown(instance)

    def _set_cordoned(self, instance: str, is_cordoned: bool) -> None:
        one = frozenset({instance})
        self._cordoned = self._cordoned | one if is_cordoned else self._cordoned - one

    def _become(self, fleet: states.Fleet) -> None:
        before, self._fleet = self._fleet, fleet
        if before.revision == fleet.revision:
            return
        for key, member in fleet.members.items():
            known = before.members.get(key)
            if known is None or known.state != member.state:
                log.info(
                    "service_state",
                    of=key,
                    state=fleet_pb2.ServiceState.Name(member.state),
                    was=None if known is None else fleet_pb2.ServiceState.Name(known.state),
                )
        self._publish()

    def _publish(self) -> None:
        shown = (self._fleet.revision, self._cordoned)
        if not self.has_settled.is_set() or shown == self._published:
            return
        self._published = shown
        services = routes.service_list(self._fleet, self._cordoned)
        table = routes.route_table(self._fleet, self._cordoned)
        self.service_board.post(services)
        if self.route_board.post(table):
            metrics.ROUTE_CHANGES.inc()
            log.info("routes_changed", version=table.version, deployments=len(table.deployments))
        metrics.show(services, table)

    async def _prune_cordons(self) -> None:
        known = {member.record.instance for member in self._fleet.members.values()}
        for instance in self._cordoned - known:
            try:
                await store.drop_cordon(self._nc, instance)
            except CordonNotKept as error:
                log.warning("cordon_not_pruned", of=instance, error=str(error))


def _now() -> states.Instant:
    return states.Instant(time.monotonic(), time.time())
