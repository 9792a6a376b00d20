"""Finds every process of a stack by the mark in its environment, also those that lost their parent.

The environment that a process was started with is in /proc/<pid>/environ; children inherit it. This
works when every pid file is stale, and it never takes a stranger for ours.
"""

import os
import signal
import time
from pathlib import Path

import psutil

from launcher.runenv import MARK

TERM_WITHIN_S = 8.0
KILL_WITHIN_S = 10.0
POLL_S = 0.05


def carries_mark(pid: int, root: Path) -> bool:
    """True when this living process belongs to the stack of the run folder."""
    wanted = f"{MARK}={root}".encode()
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return False
    return wanted in environ.split(b"\0")


def marked_pids(root: Path) -> list[int]:
    """All living processes of the stack, without the caller and those above it."""
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in pids if pid not in own and carries_mark(pid, root)]


def sweep(root: Path) -> int:
    """Ends every process of the stack, and returns how many there were.

    First SIGTERM, then SIGKILL, again and again: a process may start another one while it is
    looked for.
    """
    seen: set[int] = set()
    for number, within_s in ((signal.SIGTERM, TERM_WITHIN_S), (signal.SIGKILL, KILL_WITHIN_S)):
        signalled: set[int] = set()
        deadline = time.monotonic() + within_s
        while pids := marked_pids(root):
            for pid in pids:
                # SIGTERM once: a second one makes some programs skip their clean end.
                if pid not in signalled or number == signal.SIGKILL:
                    _send(pid, number)
            signalled.update(pids)
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        seen |= signalled
    return len(seen)


def _send(pid: int, number: signal.Signals) -> None:
    try:
        # A stopped process would take the signal only when it goes on.
        os.kill(pid, number)
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return
