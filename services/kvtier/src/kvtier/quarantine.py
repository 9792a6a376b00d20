"""How long a dead master must stay dead; pure arithmetic on one mark and one clock.

Invariant: no master is started while a lease that an earlier one gave may still be trusted. Leases
live in the master's memory only. A restarted master knows none of them, takes back the workers'
memory as free and hands it out again, and a reader that began before the restart gets the new bytes
with status OK: 183 to 188 of 200 objects in our measurement. So a new master waits until every old
lease has ended.

The mark says whether a master may be running. One that was never closed (kvtier was killed, and its
master with it) counts as alive until the moment it was found: no touched file can prove an earlier
death, because a stopped kvtier touches nothing while its master serves on.
"""

from dataclasses import dataclass

MARGIN_S = 0.5
"""The kernel kills the master within milliseconds of kvtier; the rest is for slow machines."""


@dataclass(frozen=True)
class MasterMark:
    """What is known about the newest master of this state folder."""

    lease_s: float
    """The lease it gave, which may differ from today's setting."""
    boot_id: str
    ended_at_s: float | None
    """On the boot clock, which outlives processes and counts sleep; None while it may run."""


def found_dead(mark: MasterMark, boot_id: str, now_s: float) -> MasterMark:
    """The mark of a master that surely does not run now: closed now unless it was before.

    A mark of another boot says nothing about this boot's clock, and counts from now as well.
    """
    if mark.ended_at_s is not None and mark.boot_id == boot_id:
        return mark
    return MasterMark(mark.lease_s, boot_id, now_s)


def left_s(mark: MasterMark | None, now_s: float) -> float:
    """Seconds until the next master may start; the mark must have gone through `found_dead`."""
    if mark is None:
        return 0.0
    if mark.ended_at_s is None:
        raise ValueError("Expected the mark of a dead master, got one that may be running.")
    whole_s = mark.lease_s + MARGIN_S
    return min(whole_s, max(0.0, mark.ended_at_s + whole_s - now_s))
