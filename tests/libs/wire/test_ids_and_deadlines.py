"""Ids sort by time, deadlines only shrink."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from wire.deadlines import Deadline
from wire.ids import new_instance, new_request_id


def test_request_ids_are_uuid7_and_sort_by_time():
    ids = [new_request_id() for _ in range(100)]

    assert ids == sorted(ids)
    assert {uuid.UUID(each).version for each in ids} == {7}


def test_instances_are_unique_and_hold_no_dot():
    names = {new_instance("gateway") for _ in range(10)}

    assert len(names) == 10
    assert not any("." in name for name in names)


@given(st.text(max_size=12))
def test_any_header_gives_a_deadline_within_the_default(value):
    assert Deadline.from_header(value, default_s=5).left_s() <= 5


def test_the_header_of_the_next_hop_is_never_larger():
    deadline = Deadline.from_header("1500", default_s=600)

    assert 0 < int(deadline.left_ms_header()) <= 1500
    assert Deadline.from_header("0", default_s=600).has_passed()
