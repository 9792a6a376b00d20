"""Where a request goes: models and upstreams out of health's route table. No I/O.

A team's reserved pool comes before the shared one, READY before DEGRADED, then the upstream with
the fewest requests of this gateway in flight. `batch` never answers interactive requests.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from millrace.v1 import fleet_pb2

SERVERLESS_POOLS = ("serverless", "")
KNOWN_FOR_S = 600.0
"""A model that vanished from the table stays known for this long: its cluster may be restarting,
and a client must read "no capacity, try again", not "no such model"."""
RETURNS_WITHIN_S = 30.0
"""A model without upstreams for longer than this is not waited for."""
AVOID_FOR_S = 3.0
"""An upstream that just failed comes last for this long."""

_STATE_RANK = {
    fleet_pb2.DEPLOYMENT_STATE_READY: 0,
    fleet_pb2.DEPLOYMENT_STATE_DEGRADED: 1,
}


@dataclass(frozen=True)
class Target:
    """One upstream of one deployment."""

    instance: str
    url: str
    cluster: str
    pool: str


@dataclass(frozen=True)
class Model:
    """What a client may know of a model."""

    name: str
    context_tokens: int


class RouteSnapshot:
    """The last route table, and when each (model, pool) was last known and last able to answer."""

    def __init__(self) -> None:
        self.version: int | None = None
        self._deployments: dict[str, list[fleet_pb2.Deployment]] = {}
        self._seen_at_s: dict[tuple[str, str], float] = {}
        self._able_at_s: dict[tuple[str, str], float] = {}

    @property
    def has_arrived(self) -> bool:
        """True once a first table is here."""
        return self.version is not None

    def apply(self, table: fleet_pb2.RouteTable, now_s: float) -> None:
        """Takes one message of `WatchRoutes`; `now_s` is monotonic."""
        self._refresh(now_s)
        self.version = table.version
        deployments: dict[str, list[fleet_pb2.Deployment]] = {}
        for deployment in table.deployments:
            deployments.setdefault(deployment.model, []).append(deployment)
        self._deployments = deployments
        self._refresh(now_s)

    def models(self, team_id: str) -> list[Model]:
        """The models in the table that this team may call, by name."""
        found: dict[str, int] = {}
        for name, deployments in self._deployments.items():
            for deployment in deployments:
                if _pool_rank(deployment.pool, team_id) is not None:
                    found[name] = max(found.get(name, 0), deployment.context_tokens)
        return [Model(name, found[name]) for name in sorted(found)]

    def is_known(self, model: str, team_id: str, now_s: float) -> bool:
        """True when the team may call this model: it is in the table, or was a short while ago."""
        if any(
            _pool_rank(deployment.pool, team_id) is not None
            for deployment in self._deployments.get(model, ())
        ):
            return True
        return _latest(self._seen_at_s, model, team_id) > now_s - KNOWN_FOR_S

    def may_return(self, model: str, team_id: str, now_s: float) -> bool:
        """True while waiting for an upstream of this model makes sense."""
        if self.targets(model, team_id):
            return True
        return _latest(self._able_at_s, model, team_id) > now_s - RETURNS_WITHIN_S

    def targets(self, model: str, team_id: str) -> list[tuple[tuple[int, int], Target]]:
        """Every upstream that may take a new request, each with its rank (pool, state)."""
        found = []
        for deployment in self._deployments.get(model, ()):
            pool_rank = _pool_rank(deployment.pool, team_id)
            state_rank = _STATE_RANK.get(deployment.state)
            if pool_rank is None or state_rank is None:
                continue
            for upstream in deployment.upstreams:
                if not upstream.is_draining:
                    target = Target(
                        instance=upstream.instance,
                        url=upstream.url.rstrip("/"),
                        cluster=deployment.cluster,
                        pool=deployment.pool,
                    )
                    found.append(((pool_rank, state_rank), target))
        return found

    def _refresh(self, now_s: float) -> None:
        for model, deployments in self._deployments.items():
            for deployment in deployments:
                place = (model, deployment.pool)
                self._seen_at_s[place] = now_s
                if deployment.state in _STATE_RANK:
                    self._able_at_s[place] = now_s
        for place in [p for p, at_s in self._seen_at_s.items() if at_s <= now_s - KNOWN_FOR_S]:
            del self._seen_at_s[place]
            self._able_at_s.pop(place, None)


@dataclass(frozen=True)
class Load:
    """What this gateway knows of its upstreams by itself, by instance."""

    in_flight: Mapping[str, int]
    failed_at_s: Mapping[str, float]


def choose_target(
    candidates: list[tuple[tuple[int, int], Target]],
    tried: Collection[str],
    load: Load,
    now_s: float,
) -> Target | None:
    """The best upstream that this request has not tried yet, None when there is none."""
    best: tuple[tuple[bool, tuple[int, int], int, str], Target] | None = None
    for rank, target in candidates:
        if target.instance in tried:
            continue
        failed_at_s = load.failed_at_s.get(target.instance)
        is_avoided = failed_at_s is not None and failed_at_s > now_s - AVOID_FOR_S
        order = (is_avoided, rank, load.in_flight.get(target.instance, 0), target.instance)
        if best is None or order < best[0]:
            best = (order, target)
    return None if best is None else best[1]


def _pool_rank(pool: str, team_id: str) -> int | None:
    if pool == f"reserved:{team_id}":
        return 0
    return 1 if pool in SERVERLESS_POOLS else None


def _latest(moments: dict[tuple[str, str], float], model: str, team_id: str) -> float:
    pools = (*SERVERLESS_POOLS, f"reserved:{team_id}")
    return max(moments.get((model, pool), float("-inf")) for pool in pools)
