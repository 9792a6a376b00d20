"""What a person sees while things happen: one line per step, with the seconds since the start."""

import sys
import time


class Progress:
    """Lines on standard output, each written at once."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._began

    def step(self, text: str) -> None:
        """Something is being done."""
        print(text, flush=True)

    def ready(self, name: str) -> None:
        """A process, or a quality of the whole, has turned ready."""
        print(f"  {name:<12} ready  {self.seconds():5.1f} s", flush=True)

    def problem(self, text: str) -> None:
        """Something that the person should see although things go on; on standard error."""
        print(text, file=sys.stderr, flush=True)
