"""Filter, score, pick: the router's decisions as pure functions."""

from hypothesis import given
from hypothesis import strategies as st

from router.pick import BUSY_MARGIN, DecodeCandidate, is_prefill_local, pick_decode, usable
from router.sessions import Sessions

candidates = st.lists(
    st.builds(
        DecodeCandidate,
        worker_id=st.integers(1, 9),
        overlap_blocks=st.integers(0, 50),
        active_requests=st.integers(0, 30),
        kv_blocks=st.integers(0, 500),
    ),
    unique_by=lambda candidate: candidate.worker_id,
    max_size=6,
)


@given(candidates, st.none() | st.integers(1, 9))
def test_someone_is_picked_whenever_someone_is_there(found, session_worker):
    picked = pick_decode(found, session_worker)

    assert (picked is None) == (not found)
    assert picked == pick_decode(list(reversed(found)), session_worker), "order must not matter"


@given(candidates, st.integers(1, 9))
def test_affinity_is_a_score_and_never_a_filter(found, session_worker):
    picked = pick_decode(found, session_worker)
    own = [candidate for candidate in found if candidate.worker_id == session_worker]

    if own:
        least = min(candidate.active_requests for candidate in found)
        stays = own[0].active_requests <= least + BUSY_MARGIN
        assert (picked == own[0]) or not stays


def test_a_session_leaves_a_worker_that_is_far_busier():
    own = DecodeCandidate(1, overlap_blocks=50, active_requests=BUSY_MARGIN + 1, kv_blocks=0)
    idle = DecodeCandidate(2, overlap_blocks=0, active_requests=0, kv_blocks=0)

    assert pick_decode([own, idle], session_worker=1) == idle


def test_the_longest_cached_prefix_breaks_a_tie():
    short = DecodeCandidate(1, overlap_blocks=2, active_requests=3, kv_blocks=0)
    long = DecodeCandidate(2, overlap_blocks=9, active_requests=3, kv_blocks=0)

    assert pick_decode([short, long], session_worker=None) == long


def test_suspects_are_used_only_while_nobody_else_is_left():
    assert usable([1, 2, 3], draining={1}, gone=set(), suspects={2}) == [3]
    assert usable([1, 2], draining={1}, gone=set(), suspects={2}) == [2]


def test_draining_and_unreachable_workers_are_never_used():
    assert usable([1, 2], draining={1}, gone={2}, suspects=set()) == []


def test_a_short_uncached_rest_is_prefilled_where_it_is_decoded():
    assert is_prefill_local(1000, overlap_blocks=31, block_tokens=32, local_prefill_max_tokens=8)
    assert not is_prefill_local(
        1000, overlap_blocks=30, block_tokens=32, local_prefill_max_tokens=8
    )
    assert not is_prefill_local(37, overlap_blocks=0, block_tokens=32, local_prefill_max_tokens=0)


def test_a_session_is_forgotten_after_its_ttl():
    now = [0.0]
    sessions = Sessions(ttl_s=10, clock=lambda: now[0])
    sessions.remember("s", 7)
    sessions.remember(None, 8)

    assert sessions.worker_of("s") == 7
    assert sessions.worker_of(None) is None
    now[0] = 10.5
    assert sessions.worker_of("s") is None
