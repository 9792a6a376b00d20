"""supervisord as this stack needs it: `python -m launcher.supervisord -c FILE`.

Two things differ from the stock one (supervisor 4.3, supervisor/process.py): - what a dead process
leaves in its process group is killed before it starts again. Children that outlive
  a killed parent (an engine, Mooncake's master) would hold its ports and its memory.
- the wait between starts that fail at once grows by a second each time there, without limit; here
  it
  stops growing at MOST_BACKOFF_S.
"""

import contextlib
import os
import signal
import time
from typing import Any

from supervisor import process, supervisord
from supervisor.states import ProcessStates

MOST_BACKOFF_S = 2.0


class StackProcess(process.Subprocess):  # type: ignore[misc]  # supervisor is not typed
    """A supervised process and everything it started."""

    delay: float

    def change_state(self, new_state: int, expected: bool = True) -> Any:
        """Caps the wait that the stock class has just set."""
        result = super().change_state(new_state, expected)
        if new_state == ProcessStates.BACKOFF:
            self.delay = min(self.delay, time.time() + MOST_BACKOFF_S)
        return result

    def finish(self, pid: int, status: int) -> None:
        """Kills the rest of the group, then notes the death."""
        with contextlib.suppress(ProcessLookupError):  # the usual case: nothing is left
            os.killpg(pid, signal.SIGKILL)
        super().finish(pid, status)


def main() -> None:
    """Runs supervisord with StackProcess in the place of its own class."""
    process.Subprocess = StackProcess
    supervisord.main()


if __name__ == "__main__":
    main()
