"""What operators see of the books without asking the database."""

import httpx

from tests.fixtures.wait import until
from tests.services.billing.world import World, usage_event


async def test_what_needs_a_look_is_counted(world: World) -> None:
    billing = await world.start()
    await billing.set_price("smollm2", "0.15", "0.05", "0.6")
    event = usage_event("team-a")
    conflict = usage_event("team-a", request_id=event.request_id, completion=8)
    unpriced = usage_event("team-a", model="new-model")

    await world.publish([event, event, conflict, unpriced])
    await world.publish_bytes(b"\xff")
    await world.until_settled()

    expected = {
        "millrace_billing_events_posted_total": 1,
        "millrace_billing_events_duplicate_total": 2,
        "millrace_billing_event_conflicts_total": 1,
        "millrace_billing_dead_letters_total": 1,
        "millrace_billing_unpriced_events": 1,
    }
    await until(lambda: _has(billing.metrics_url, expected), within_s=8, what=str(expected))


async def _has(url: str, expected: dict[str, int]) -> bool:
    async with httpx.AsyncClient(trust_env=False) as client:
        text = (await client.get(url)).text
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return all(float(found.get(name, -1)) == value for name, value in expected.items())
