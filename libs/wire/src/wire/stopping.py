"""SIGTERM and SIGINT mean the same for every service: stop in order, then exit 0."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


def stop_event() -> asyncio.Event:
    """An event that the first SIGTERM or SIGINT sets; call it inside the running loop."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def run_until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Runs the work until a signal, then cancels it and waits for its cleanup.

    Raises what the work raises, as an ExceptionGroup.
    """
    stop = stop_event()
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(work)
        await stop.wait()
        serving.cancel()
