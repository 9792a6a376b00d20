"""What may be sent where: the service list and the route table, computed from the fleet; no I/O.

Invariant: the same fleet and the same cordons give the same table, byte for byte, whatever the
order in which processes appeared.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from google.protobuf.timestamp_pb2 import Timestamp

from health.states import DRAINING, READY, Fleet, Member
from millrace.v1 import fleet_pb2

DEFAULT_POOL = "serverless"
ATTACHED = "upstream"
"""Service name of an attached OpenAI-wire address: a bare record; it needs no workers of ours."""

DeploymentKey = tuple[str, str, str]


@dataclass
class _Serving:
    """What was found for one (cluster, model, pool)."""

    upstreams: list[fleet_pb2.Upstream] = field(default_factory=list)
    context_tokens: list[int] = field(default_factory=list)
    has_router: bool = False
    has_attached: bool = False


def status(member: Member, cordoned: Collection[str]) -> fleet_pb2.ServiceStatus:
    """One process as operators see it."""
    return fleet_pb2.ServiceStatus(
        record=member.record,
        state=member.state,
        changed_at=Timestamp(
            seconds=int(member.changed_at.wall_s),
            nanos=int(member.changed_at.wall_s % 1 * 1_000_000) * 1_000,
        ),
        is_cordoned=member.record.instance in cordoned,
    )


def service_list(fleet: Fleet, cordoned: Collection[str]) -> fleet_pb2.ServiceList:
    """Every known process, by service and instance; the version is the caller's."""
    return fleet_pb2.ServiceList(
        services=[status(fleet.members[key], cordoned) for key in sorted(fleet.members)]
    )


def route_table(fleet: Fleet, cordoned: Collection[str]) -> fleet_pb2.RouteTable:
    """A deployment per (cluster, model, pool) that a router or an attached upstream is known for.

    One whose routers are all gone or starting stays in the table as DOWN, so that its clients are
    told to come back rather than that there is no such model. The version is the caller's.
    """
    members = [fleet.members[key] for key in sorted(fleet.members)]
    workers = _count_workers(members, cordoned)
    deployments = [
        _deployment(key, serving, workers)
        for key, serving in sorted(_find_serving(members, cordoned).items())
    ]
    return fleet_pb2.RouteTable(deployments=deployments)


def _find_serving(
    members: Iterable[Member], cordoned: Collection[str]
) -> dict[DeploymentKey, _Serving]:
    found: dict[DeploymentKey, _Serving] = defaultdict(_Serving)
    for member in members:
        record = member.record
        if record.service not in ("router", ATTACHED):
            continue
        for model in record.models:
            serving = found[(record.cluster, model.name, model.pool or DEFAULT_POOL)]
            if member.state not in (READY, DRAINING) or not record.http_url:
                continue
            takes_requests = member.state == READY and record.instance not in cordoned
            serving.upstreams.append(
                fleet_pb2.Upstream(
                    instance=record.instance,
                    url=record.http_url.rstrip("/"),
                    is_draining=not takes_requests,
                )
            )
            serving.context_tokens.append(model.context_tokens)
            serving.has_router |= takes_requests and record.service == "router"
            serving.has_attached |= takes_requests and record.service == ATTACHED
    return found


def _count_workers(
    members: Iterable[Member], cordoned: Collection[str]
) -> Mapping[tuple[str, str, str, str], int]:
    """READY uncordoned workers by (role, cluster, model, pool); pool "" serves every pool."""
    counts: dict[tuple[str, str, str, str], int] = defaultdict(int)
    for member in members:
        record = member.record
        if record.service not in ("prefill", "decode") or member.state != READY:
            continue
        if record.instance in cordoned:
            continue
        for model in record.models:
            counts[(record.service, record.cluster, model.name, model.pool)] += 1
    return counts


def _deployment(
    key: DeploymentKey, serving: _Serving, workers: Mapping[tuple[str, str, str, str], int]
) -> fleet_pb2.Deployment:
    cluster, model, pool = key

    def count(role: str) -> int:
        return sum(workers.get((role, cluster, model, served), 0) for served in (pool, ""))

    prefill, decode = count("prefill"), count("decode")
    return fleet_pb2.Deployment(
        cluster=cluster,
        model=model,
        pool=pool,
        state=_state(serving, prefill, decode),
        upstreams=serving.upstreams,
        # The smallest, so that what one upstream accepts the next one accepts too after a failover.
        context_tokens=min((tokens for tokens in serving.context_tokens if tokens), default=0),
        prefill_workers=prefill,
        decode_workers=decode,
    )


def _state(serving: _Serving, prefill: int, decode: int) -> "fleet_pb2.DeploymentState.ValueType":
    if serving.has_attached or (serving.has_router and prefill and decode):
        return fleet_pb2.DEPLOYMENT_STATE_READY
    if serving.has_router and (prefill or decode):
        return fleet_pb2.DEPLOYMENT_STATE_DEGRADED
    return fleet_pb2.DEPLOYMENT_STATE_DOWN
