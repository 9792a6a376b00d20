"""Loops over nats-py must ask for themselves whether they were cancelled.

nats-py awaits its replies with asyncio.wait_for, and Python 3.11's wait_for swallows a cancellation
that arrives together with the result (cpython issue 86296, mended in 3.12). A loop that trusts it
may then never end. The task still knows: its count of cancellation requests stays above zero.
"""

import asyncio


def raise_if_cancelled() -> None:
    """Raises CancelledError when the current task was cancelled; call it in every turn."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
