"""What the master says of itself: its Prometheus text, read into one record."""

from dataclasses import dataclass

import aiohttp

from kvtier.errors import MasterSilent

TIMEOUT = aiohttp.ClientTimeout(total=2.0)


@dataclass(frozen=True)
class MasterStats:
    """Mooncake's counters since the master started; objects of a batch are counted one by one."""

    capacity_bytes: int
    used_bytes: int
    objects: int
    clients: int
    put_requests: int
    get_requests: int
    evicted_objects: int


async def fetch(session: aiohttp.ClientSession, url: str) -> MasterStats:
    """Asks the master; raises MasterSilent when it does not answer as expected."""
    try:
        async with session.get(url, timeout=TIMEOUT) as response:
            text = await response.text()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise MasterSilent(url, repr(error)) from error
    try:
        return parse(text)
    except (KeyError, ValueError) as error:
        raise MasterSilent(url, f"text without a readable {error}") from error


def parse(text: str) -> MasterStats:
    """Reads Prometheus text of Mooncake 0.3.13; KeyError names a metric that is missing."""
    values = {
        name: float(value)
        for name, _, value in (line.partition(" ") for line in text.splitlines())
        if name.startswith("master_") and "{" not in name
    }

    def total(*names: str) -> int:
        return sum(int(values[name]) for name in names)

    return MasterStats(
        capacity_bytes=total("master_total_capacity_bytes"),
        used_bytes=total("master_allocated_bytes"),
        objects=total("master_key_count"),
        clients=total("master_active_clients"),
        put_requests=total("master_put_start_requests_total", "master_batch_put_start_items_total"),
        get_requests=total(
            "master_get_replica_list_requests_total", "master_batch_get_replica_list_items_total"
        ),
        evicted_objects=total("master_evicted_key_count"),
    )
