"""kvtier with one rule broken, or with one part that misbehaves."""

import asyncio
import sys
from asyncio.subprocess import Process
from collections.abc import Callable

from kvtier import children, quarantine, tier
from kvtier.settings import Settings


def no_quarantine() -> None:
    """Starts a new master at once, whatever leases the old one gave."""
    quarantine.left_s = lambda mark, now_s: 0.0  # noqa: ARG005


def first_node_hangs() -> None:
    """The first node never lends its memory; the limit is short so that a test can wait for it."""
    start_node, are_started = children.start_node, []

    async def start(settings: Settings) -> Process:
        are_started.append(True)
        if len(are_started) > 1:
            return await start_node(settings)
        sleep = "import time; time.sleep(600)"
        return await asyncio.create_subprocess_exec(
            sys.executable, "-c", sleep, stdout=asyncio.subprocess.PIPE
        )

    children.start_node = start
    tier.MOUNT_LIMIT_S = 1.0


MUTANTS: dict[str, Callable[[], None]] = {
    patch.__name__: patch for patch in (no_quarantine, first_node_hangs)
}
