"""A cancellation that wait_for swallowed still ends a loop."""

import asyncio

import pytest

from wire.cancellation import raise_if_cancelled


async def swallow_one_cancellation() -> None:
    """What Python 3.11's wait_for does when the result comes together with the cancellation."""
    try:
        await asyncio.sleep(10)
    except asyncio.CancelledError:
        return


@pytest.mark.parametrize("asks", [True, False])
async def test_a_loop_that_asks_ends_and_one_that_does_not_goes_on(asks):
    turns = 0

    async def loop() -> None:
        nonlocal turns
        while turns < 3:
            if asks:
                raise_if_cancelled()
            turns += 1
            if turns == 1:
                await swallow_one_cancellation()
            await asyncio.sleep(0)

    task = asyncio.create_task(loop())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled() is asks
    assert turns == (1 if asks else 3)


async def test_a_timeout_of_ones_own_is_no_cancellation():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.sleep(1)

    raise_if_cancelled()
