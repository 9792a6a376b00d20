"""The pure core of health under any order of beats, ended leases, broker losses and silence."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from health import routes, states
from health.states import DOWN, DRAINING, READY, SILENCE_S, STARTING, Fleet, Instant
from millrace.v1 import fleet_pb2

KEYS = ("router.a", "prefill.b", "decode.c", "health.d")
Step = tuple[float, str, str, int]
"""Seconds since the last step, what happens, to whom, and the state that a beat claims."""

STEPS = st.lists(
    st.tuples(
        st.floats(min_value=0, max_value=10, allow_nan=False),
        st.sampled_from(("seen", "gone", "synced", "advance")),
        st.sampled_from(KEYS),
        st.sampled_from((STARTING, READY, DRAINING)),
    ),
    max_size=60,
)


def record(key: str, state: int = READY) -> fleet_pb2.ServiceRecord:
    """What the process under this key says of itself."""
    service, instance = key.split(".")
    return fleet_pb2.ServiceRecord(
        service=service,
        instance=instance,
        cluster="c",
        state=state,  # type: ignore[arg-type]  # a plain int on the wire
        http_url="http://x" if service == "router" else "",
        models=[fleet_pb2.ServedModel(name="tiny", context_tokens=100)],
    )


def at(seconds: float) -> Instant:
    """Both clocks at this many seconds."""
    return Instant(seconds, 1_000_000 + seconds)


def after(fleet: Fleet, step: Step, now_s: float) -> Fleet:
    """The fleet after one step."""
    _, event, key, state = step
    match event:
        case "seen":
            return states.seen(fleet, key, record(key, state), at(now_s))
        case "gone":
            return states.gone(fleet, key, at(now_s))
        case "synced":
            return states.synced(fleet, at(now_s))
        case _:
            return states.advance(fleet, at(now_s))


def walk(steps: list[Step]) -> list[tuple[float, Fleet]]:
    """Every fleet along the way, with its time."""
    now_s, fleet = 0.0, Fleet()
    way = [(now_s, fleet)]
    for step in steps:
        now_s += step[0]
        fleet = after(fleet, step, now_s)
        way.append((now_s, fleet))
    return way


@given(STEPS)
def test_versions_never_go_back_and_grow_with_every_visible_change(steps: list[Step]) -> None:
    way = walk(steps)

    for (_, before), (_, now) in itertools.pairwise(way):
        changed = routes.service_list(before, ()) != routes.service_list(now, ())
        assert now.revision >= before.revision
        assert not changed or now.revision > before.revision


@given(STEPS)
def test_the_same_events_give_the_same_tables(steps: list[Step]) -> None:
    once, again = walk(steps)[-1][1], walk(steps)[-1][1]

    for build in (routes.service_list, routes.route_table):
        one = build(once, {"a"}).SerializeToString(deterministic=True)
        assert one == build(again, {"a"}).SerializeToString(deterministic=True)


@given(STEPS)
def test_transitions_are_bounded_by_the_events_that_ask_for_them(steps: list[Step]) -> None:
    way = walk(steps)

    for key in KEYS:
        held = [fleet.members[key].state for _, fleet in way if key in fleet.members]
        transitions = sum(one != next_ for one, next_ in itertools.pairwise(held))
        beats = sum(event == "seen" and of == key for _, event, of, _ in steps)
        # Each beat changes the state at most once, and only a beat brings back what is DOWN.
        assert transitions <= 2 * beats


@given(STEPS)
def test_nobody_goes_down_while_the_broker_is_silent(steps: list[Step]) -> None:
    way = walk(steps)

    for (_, before), (now_s, now), step in zip(way, way[1:], steps, strict=False):
        went_down = {
            key
            for key, member in now.members.items()
            if member.state == DOWN and key in before.members and before.members[key].state != DOWN
        }
        was_silent = before.heard_at_s is None or now_s - before.heard_at_s > SILENCE_S
        assert not (went_down and was_silent)
        assert step[1] != "synced" or not went_down


@settings(max_examples=200)
@given(STEPS)
def test_a_doubted_process_that_stays_silent_is_down_after_two_ttls(steps: list[Step]) -> None:
    now_s, fleet = walk(steps)[-1]
    fleet = states.seen(fleet, "decode.c", record("decode.c"), at(now_s))
    fleet = states.synced(states.synced(fleet, at(now_s)), at(now_s))

    # The broker is heard (another process beats); this one says nothing.
    for _ in range(int(states.DOUBT_S) + 1):  # one more: sums of floats round
        now_s += 1.0
        fleet = states.seen(fleet, "health.d", record("health.d"), at(now_s))
        fleet = states.advance(fleet, at(now_s))

    assert fleet.members["decode.c"].state == DOWN
    assert fleet.members["health.d"].state == READY


def test_what_is_long_down_is_forgotten_and_a_restart_loop_cannot_fill_the_list() -> None:
    fleet = Fleet()
    for number in range(2 * states.DOWN_KEPT_MOST):
        key = f"decode.{number}"
        fleet = states.seen(fleet, key, record(key), at(number))
        fleet = states.gone(fleet, key, at(number))
    last_s = float(2 * states.DOWN_KEPT_MOST)

    bounded = states.advance(fleet, at(last_s))
    forgotten = states.advance(bounded, at(last_s + states.DOWN_KEPT_S + 1))

    assert len(bounded.members) == states.DOWN_KEPT_MOST
    assert f"decode.{2 * states.DOWN_KEPT_MOST - 1}" in bounded.members
    assert not forgotten.members


def table_of(*members: tuple[str, str, str, int], cordoned: tuple[str, ...] = ()) -> str:
    """The state of the only deployment for processes given as (service, instance, pool, state)."""
    fleet = Fleet()
    for service, instance, pool, state in members:
        one = record(f"{service}.{instance}", state)
        one.http_url = "http://x"
        one.models[0].pool = pool
        fleet = states.seen(fleet, f"{service}.{instance}", one, at(0))
    (deployment,) = routes.route_table(fleet, cordoned).deployments
    return fleet_pb2.DeploymentState.Name(deployment.state).removeprefix("DEPLOYMENT_STATE_")


def test_a_deployment_is_ready_only_with_a_router_and_both_kinds_of_worker() -> None:
    router, prefill = ("router", "r", "", READY), ("prefill", "p", "", READY)
    decode, upstream = ("decode", "d", "", READY), ("upstream", "u", "", READY)
    draining, starting = ("router", "r", "", DRAINING), ("prefill", "p", "", STARTING)
    reserved = ("decode", "d", "reserved:team", READY)

    assert table_of(router, prefill, decode) == "READY"
    assert table_of(router, decode) == "DEGRADED"
    assert table_of(router, prefill) == "DEGRADED"
    assert table_of(router, starting, decode) == "DEGRADED"
    assert table_of(router, prefill, reserved) == "DEGRADED"
    assert table_of(router) == "DOWN"
    assert table_of(draining, prefill, decode) == "DOWN"
    assert table_of(upstream) == "READY"
    assert table_of(router, prefill, decode, cordoned=("d",)) == "DEGRADED"
    assert table_of(router, prefill, decode, cordoned=("r",)) == "DOWN"
    assert table_of(upstream, cordoned=("u",)) == "DOWN"
