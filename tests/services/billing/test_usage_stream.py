"""The usage stream has one definition, and whoever comes first makes it."""

import asyncio

from nats.js.api import RetentionPolicy, StorageType

from tests.services.billing.world import World
from wire import subjects
from wire.usage_stream import ensure_usage_stream


async def test_many_may_make_the_stream_at_once(world: World) -> None:
    js = world.nc.jetstream()

    await asyncio.gather(*(ensure_usage_stream(js) for _ in range(20)))

    config = (await js.stream_info(subjects.USAGE_STREAM)).config
    assert config.subjects == ["millrace.v1.*.usage"]
    assert config.retention == RetentionPolicy.LIMITS
    assert config.storage == StorageType.FILE
    assert config.max_age == 14 * 24 * 3600
    assert config.duplicate_window == 120


async def test_a_stream_that_an_operator_changed_stays_as_it_is(world: World) -> None:
    js = world.nc.jetstream()
    await ensure_usage_stream(js)
    config = (await js.stream_info(subjects.USAGE_STREAM)).config
    await js.update_stream(config.evolve(max_age=30 * 24 * 3600))

    await ensure_usage_stream(js)
    await world.start()
    await world.until_settled()

    assert (await js.stream_info(subjects.USAGE_STREAM)).config.max_age == 30 * 24 * 3600
