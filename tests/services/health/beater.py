"""A process that beats with the record it is given as JSON, as every service does.

SIGUSR1 makes it drain. Its beats are numbered in the record's notes: a test can tell a new one.
"""

import asyncio
import itertools
import os
import signal
import sys

from google.protobuf import json_format

from millrace.v1 import fleet_pb2
from wire import nats_connection
from wire.heartbeat import Heartbeat


async def beat(record: fleet_pb2.ServiceRecord) -> None:
    """Beats until SIGTERM, then leaves in order."""
    loop = asyncio.get_running_loop()
    numbers = itertools.count()

    def describe() -> fleet_pb2.ServiceRecord:
        record.notes["beat"] = str(next(numbers))
        return record

    def drain() -> None:
        record.state = fleet_pb2.SERVICE_STATE_DRAINING
        heartbeat.beat_now()

    nc = await nats_connection.connect(os.environ["NATS_URL"], record.instance)
    heartbeat = Heartbeat(nc, describe)
    beating = asyncio.create_task(heartbeat.run())
    loop.add_signal_handler(signal.SIGTERM, beating.cancel)
    loop.add_signal_handler(signal.SIGUSR1, drain)
    await asyncio.wait([beating])
    await nc.close()


if __name__ == "__main__":
    asyncio.run(beat(json_format.Parse(sys.argv[1], fleet_pb2.ServiceRecord())))
