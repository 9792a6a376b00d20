"""Keys against a directory, models and upstreams against a route table: decisions without I/O."""

import hashlib
from typing import Any

import pytest

from gateway.choose import (
    AVOID_FOR_S,
    KNOWN_FOR_S,
    RETURNS_WITHIN_S,
    Load,
    Model,
    RouteSnapshot,
    choose_target,
)
from gateway.errors import KeyRefused, NotReady, TeamSuspended
from gateway.keys import Caller, DirectorySnapshot, check_key
from millrace.v1 import directory_pb2, fleet_pb2

READY = fleet_pb2.DEPLOYMENT_STATE_READY
DEGRADED = fleet_pb2.DEPLOYMENT_STATE_DEGRADED
DOWN = fleet_pb2.DEPLOYMENT_STATE_DOWN


def api_key(text: str, key_id: str = "k", **more: Any) -> directory_pb2.ApiKey:
    """A key as billing sends it."""
    digest = hashlib.sha256(text.encode()).digest()
    return directory_pb2.ApiKey(key_id=key_id, sha256=digest, team_id="t", **more)


def directory(*keys: directory_pb2.ApiKey, is_suspended: bool = False) -> DirectorySnapshot:
    """A directory of one team."""
    snapshot = DirectorySnapshot()
    team = directory_pb2.Team(team_id="t", is_suspended=is_suspended)
    snapshot.apply(
        directory_pb2.DirectoryUpdate(is_snapshot=True, revision=1, teams=[team], keys=keys)
    )
    return snapshot


def test_a_known_key_names_its_caller() -> None:
    assert check_key(b"Bearer mr-1", directory(api_key("mr-1"))) == Caller("t", "k")
    assert check_key(b"bearer   mr-1 ", directory(api_key("mr-1"))) == Caller("t", "k")


def test_before_the_first_snapshot_nobody_is_refused_for_good() -> None:
    empty = DirectorySnapshot()
    empty.apply(directory_pb2.DirectoryUpdate(revision=5, keys=[api_key("mr-1")]))

    with pytest.raises(NotReady):
        check_key(b"Bearer mr-1", empty)


def test_a_delta_revokes_and_replaces() -> None:
    snapshot = directory(api_key("mr-1"), api_key("mr-2", "k2"))

    snapshot.apply(
        directory_pb2.DirectoryUpdate(
            revision=2, keys=[api_key("mr-1", is_revoked=True), api_key("mr-3", "k2")]
        )
    )

    with pytest.raises(KeyRefused, match="revoked"):
        check_key(b"Bearer mr-1", snapshot)
    with pytest.raises(KeyRefused, match="Incorrect"):
        check_key(b"Bearer mr-2", snapshot)
    assert check_key(b"Bearer mr-3", snapshot) == Caller("t", "k2")


def test_an_empty_update_changes_nothing() -> None:
    snapshot = directory(api_key("mr-1"))

    snapshot.apply(directory_pb2.DirectoryUpdate(revision=1))

    assert check_key(b"Bearer mr-1", snapshot) == Caller("t", "k")


def test_a_snapshot_replaces_everything() -> None:
    snapshot = directory(api_key("mr-1"))

    snapshot.apply(directory_pb2.DirectoryUpdate(is_snapshot=True, revision=9))

    with pytest.raises(KeyRefused):
        check_key(b"Bearer mr-1", snapshot)


def test_a_suspended_team_may_not_call() -> None:
    with pytest.raises(TeamSuspended):
        check_key(b"Bearer mr-1", directory(api_key("mr-1"), is_suspended=True))


def deployment(
    model: str,
    instances: str,
    *,
    pool: str = "serverless",
    state: "fleet_pb2.DeploymentState.ValueType" = READY,
) -> fleet_pb2.Deployment:
    """A deployment with one upstream for each letter; a capital letter drains."""
    upstreams = [
        fleet_pb2.Upstream(
            instance=letter.lower(), url=f"http://{letter}/", is_draining=letter.isupper()
        )
        for letter in instances
    ]
    return fleet_pb2.Deployment(
        cluster="c", model=model, pool=pool, state=state, upstreams=upstreams, context_tokens=10
    )


def routes(*deployments: fleet_pb2.Deployment, now_s: float = 100.0) -> RouteSnapshot:
    """A route table that has just arrived."""
    snapshot = RouteSnapshot()
    snapshot.apply(fleet_pb2.RouteTable(version=1, deployments=deployments), now_s)
    return snapshot


def choose(
    snapshot: RouteSnapshot,
    *,
    team_id: str = "t",
    tried: tuple[str, ...] = (),
    in_flight: dict[str, int] | None = None,
    failed_at_s: dict[str, float] | None = None,
) -> str | None:
    """The chosen instance for the model `m`."""
    load = Load(in_flight or {}, failed_at_s or {})
    target = choose_target(snapshot.targets("m", team_id), tried, load, 100.0)
    return None if target is None else target.instance


def test_the_least_loaded_upstream_that_takes_requests_is_chosen() -> None:
    table = routes(deployment("m", "aBc"))

    assert choose(table) == "a"
    assert choose(table, in_flight={"a": 1}) == "c"
    assert choose(table, tried=("a",)) == "c"
    assert choose(table, tried=("a", "c")) is None
    assert choose(routes(deployment("other", "a"))) is None


def test_an_upstream_that_just_failed_comes_last() -> None:
    table = routes(deployment("m", "ab"))

    assert choose(table, in_flight={"b": 5}, failed_at_s={"a": 99.9}) == "b"
    assert choose(table, in_flight={"b": 5}, failed_at_s={"a": 100 - AVOID_FOR_S}) == "a"
    assert choose(table, tried=("b",), failed_at_s={"a": 99.9}) == "a"


def test_a_teams_own_pool_then_health_decide_before_load() -> None:
    table = routes(
        deployment("m", "a", state=DEGRADED),
        deployment("m", "b"),
        deployment("m", "c", pool="reserved:t"),
        deployment("m", "d", pool="batch"),
        deployment("m", "e", state=DOWN),
    )

    assert choose(table, in_flight={"c": 9, "b": 9}) == "c"
    assert choose(table, team_id="other", in_flight={"b": 9}) == "b"
    assert choose(table, team_id="other", tried=("b",)) == "a"
    assert choose(table, team_id="other", tried=("a", "b")) is None


def test_models_are_those_that_the_team_may_call() -> None:
    table = routes(
        deployment("m", "a"),
        deployment("r", "b", pool="reserved:t"),
        deployment("x", "c", pool="batch"),
    )

    assert table.models("t") == [Model("m", 10), Model("r", 10)]
    assert table.models("other") == [Model("m", 10)]
    assert table.is_known("r", "t", 100.0)
    assert not table.is_known("r", "other", 100.0)
    assert not table.is_known("x", "t", 100.0)


def test_a_model_that_vanishes_is_known_and_waited_for_for_a_while() -> None:
    table = routes(deployment("m", "a"), now_s=100.0)

    table.apply(fleet_pb2.RouteTable(version=2), 200.0)

    assert table.models("t") == []
    assert table.is_known("m", "t", 200.0 + KNOWN_FOR_S - 1)
    assert not table.is_known("m", "t", 200.0 + KNOWN_FOR_S + 1)
    assert table.may_return("m", "t", 200.0 + RETURNS_WITHIN_S - 1)
    assert not table.may_return("m", "t", 200.0 + RETURNS_WITHIN_S + 1)


def test_a_model_that_was_never_up_is_not_waited_for() -> None:
    table = routes(deployment("m", "", state=DOWN))

    assert table.is_known("m", "t", 100.0)
    assert not table.may_return("m", "t", 100.0)
