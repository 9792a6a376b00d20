"""The `KvTier` gRPC service, and what kvtier says of itself in the registry."""

from typing import Any

import grpc.aio

from kvtier.tier import Tier, TierState
from millrace.v1 import fleet_pb2, kvtier_pb2, kvtier_pb2_grpc

WIRE_STATE = {
    TierState.READY: kvtier_pb2.KV_TIER_STATE_READY,
    TierState.QUARANTINED: kvtier_pb2.KV_TIER_STATE_QUARANTINED,
    TierState.DOWN: kvtier_pb2.KV_TIER_STATE_DOWN,
}


class KvTierEdge(kvtier_pb2_grpc.KvTierServicer):
    """Answers from the tier."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier

    async def GetKvTierStats(  # noqa: N802  # name fixed by the proto
        self,
        _request: kvtier_pb2.GetKvTierStatsRequest,
        _context: grpc.aio.ServicerContext[Any, Any],
    ) -> kvtier_pb2.KvTierStats:
        """The master's figures now; zeros while there is no master."""
        status = await self._tier.status()
        reply = kvtier_pb2.KvTierStats(
            state=WIRE_STATE[status.state],
            master_restarts=status.master_restarts,
            quarantine_left_s=status.quarantine_left_s,
        )
        if (master := status.master) is not None:
            reply.capacity_bytes = master.capacity_bytes
            reply.used_bytes = master.used_bytes
            reply.objects = master.objects
            reply.clients = master.clients
            reply.put_requests = master.put_requests
            reply.get_requests = master.get_requests
            reply.evicted_objects = master.evicted_objects
        return reply


def describe(record: fleet_pb2.ServiceRecord, tier: Tier) -> fleet_pb2.ServiceRecord:
    """The record with the tier's present state in it."""
    is_ready = tier.state is TierState.READY
    record.state = fleet_pb2.SERVICE_STATE_READY if is_ready else fleet_pb2.SERVICE_STATE_STARTING
    record.notes["tier"] = tier.state.value
    return record
