"""Health with one rule broken."""

from collections.abc import Callable
from dataclasses import replace

from health import states, watch


def broker_loss_empties_the_table() -> None:
    """Takes everyone out whom a restarted broker does not know any more."""
    synced = states.synced

    def synced_and_empty(fleet: states.Fleet, now: states.Instant) -> states.Fleet:
        if not fleet.is_synced:
            return synced(fleet, now)
        everyone = {key: states._down(member, now) for key, member in fleet.members.items()}
        return states._put(synced(fleet, now), everyone, is_news=True)

    states.synced = synced_and_empty


def ended_leases_are_always_believed() -> None:
    """Believes a broker that stood still when it says that leases ended."""

    def heard(fleet: states.Fleet, now: states.Instant) -> states.Fleet:
        return replace(fleet, heard_at_s=now.monotonic_s)

    states._heard = heard


def first_look_published() -> None:
    """Publishes what it sees first, however little that is."""
    watch.SETTLE_S = 0.0


MUTANTS: dict[str, Callable[[], None]] = {
    patch.__name__: patch
    for patch in (
        broker_loss_empties_the_table,
        ended_leases_are_always_believed,
        first_look_published,
    )
}
