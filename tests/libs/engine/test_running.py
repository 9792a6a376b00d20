"""When a request may be aborted, and when a worker is idle."""

import asyncio

import pytest

from engine.running import MOST_REMEMBERED, REMEMBERED_S, RunningRequests


async def test_a_request_that_pulls_kv_is_abortable_only_after_its_first_token():
    requests = RunningRequests()

    with requests.entered("r", pulls_kv=True) as running:
        abort = asyncio.create_task(running.wait_until_abortable())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not abort.done()

        running.has_first_token.set()
        await asyncio.wait_for(abort, 1)


async def test_a_request_that_computes_its_own_prompt_is_abortable_at_once():
    requests = RunningRequests()

    with requests.entered("r", pulls_kv=False) as running:
        await asyncio.wait_for(running.wait_until_abortable(), 1)


async def test_an_abort_that_waits_is_let_go_when_the_request_fails():
    requests = RunningRequests()
    waiting: list[asyncio.Task[None]] = []

    async def fail() -> None:
        with requests.entered("r", pulls_kv=True) as running:
            waiting.append(asyncio.create_task(running.wait_until_abortable()))
            await asyncio.sleep(0)
            raise RuntimeError("the pull failed")

    with pytest.raises(RuntimeError, match="the pull failed"):
        await fail()

    await asyncio.wait_for(waiting[0], 1)
    assert requests.get("r") is None


def test_an_abort_that_comes_before_its_request_is_remembered_once():
    requests = RunningRequests()

    requests.abort_early("r")

    assert not requests.was_aborted_early("another")
    assert requests.was_aborted_early("r")
    assert not requests.was_aborted_early("r")


def test_early_aborts_are_forgotten_after_a_minute_and_never_fill_the_memory():
    now_s = 100.0
    requests = RunningRequests(clock=lambda: now_s)

    for number in range(MOST_REMEMBERED + 1):
        requests.abort_early(str(number))
    assert not requests.was_aborted_early("0")
    assert requests.was_aborted_early("1")

    now_s += REMEMBERED_S
    assert not requests.was_aborted_early(str(MOST_REMEMBERED))


async def test_idle_means_that_no_request_is_left():
    requests = RunningRequests()
    await asyncio.wait_for(requests.wait_until_idle(), 1)

    with requests.entered("a", pulls_kv=False):
        idle = asyncio.create_task(requests.wait_until_idle())
        await asyncio.sleep(0)
        assert not idle.done()
        assert len(requests) == 1

    await asyncio.wait_for(idle, 1)
