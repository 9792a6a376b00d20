"""`./tools/down`: stops a stack and proves that nothing of it is left.

Invariant: when this says that the stack is down, no process carries the run folder's mark and no
port of the stack is taken, whatever crashed before. Running it again does no harm.
"""

import argparse
import sys
import time
from pathlib import Path

from launcher import marks, ports, supervise
from launcher.runenv import ROOT, RunDir, RunDirUnusable

PORTS_FREE_WITHIN_S = 5.0
POLL_S = 0.05


class StillThere(RuntimeError):
    """Something of the stack could not be ended."""


def bring_down(run: RunDir) -> tuple[bool, int]:
    """Ends the stack; whether its supervisor stopped it in order, and how many had to be swept up.

    Raises StillThere.
    """
    in_order = supervise.stop(run)
    swept = marks.sweep(run.root)
    supervise.pid_file(run).unlink(missing_ok=True)
    left = marks.marked_pids(run.root)
    if left:
        raise StillThere(f"expected no process of {run.root}, found {left}: end them by hand")
    if not in_order and not swept:
        return in_order, swept  # ports of a stack that ended long ago may be anybody's by now
    deadline = time.monotonic() + PORTS_FREE_WITHIN_S
    while taken := _taken_ports(run):
        if time.monotonic() > deadline:
            raise StillThere(
                "no process of the stack is left, but somebody listens on its ports: "
                + ", ".join(f"{name} {port}" for name, port in taken.items())
            )
        time.sleep(POLL_S)
    return in_order, swept


def _taken_ports(run: RunDir) -> dict[str, int]:
    return {name: port for name, port in run.known_ports().items() if ports.is_listening(port)}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="./tools/down", description="Stops the local stack.")
    parser.add_argument("--run-dir", type=Path, default=ROOT / ".run", help="default: .run")
    args = parser.parse_args()
    if not args.run_dir.exists():
        print("down: nothing was running")
        return 0
    try:
        in_order, swept = bring_down(RunDir.at(args.run_dir))
    except (StillThere, RunDirUnusable) as error:
        print(f"down: {error}", file=sys.stderr)
        return 1
    if in_order:
        print("down: all processes have stopped")
    elif swept:
        print(f"down: ended {swept} processes that had lost their supervisor")
    else:
        print("down: nothing was running")
    return 0


if __name__ == "__main__":
    sys.exit(main())
