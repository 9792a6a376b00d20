"""The arithmetic of the quarantine, for every mark and every clock."""

from hypothesis import given
from hypothesis import strategies as st

from kvtier.quarantine import MARGIN_S, MasterMark, found_dead, left_s

SECONDS = st.floats(min_value=0, max_value=1e6, allow_nan=False)
LEASES = st.floats(min_value=1, max_value=600, allow_nan=False)
ROUNDING_S = 1e-6
"""Sums of floats up to 1e6 s."""


@given(lease_s=LEASES, died_s=SECONDS, found_after_s=SECONDS, waited_s=SECONDS)
def test_no_master_starts_before_the_last_lease_of_the_dead_one_has_ended(
    lease_s: float, died_s: float, found_after_s: float, waited_s: float
) -> None:
    found_s = died_s + found_after_s
    closed = found_dead(MasterMark(lease_s, "boot", None), "boot", found_s)

    may_start = left_s(closed, found_s + waited_s) <= 0

    assert not may_start or found_s + waited_s >= died_s + lease_s - ROUNDING_S


@given(lease_s=LEASES, ended_s=SECONDS, later_s=SECONDS)
def test_the_wait_of_a_closed_mark_runs_from_its_end_and_is_not_begun_anew(
    lease_s: float, ended_s: float, later_s: float
) -> None:
    mark = MasterMark(lease_s, "boot", ended_s)

    again = found_dead(mark, "boot", ended_s + later_s)

    assert again == mark
    expected_s = max(0.0, lease_s + MARGIN_S - later_s)
    assert abs(left_s(again, ended_s + later_s) - expected_s) < ROUNDING_S


@given(lease_s=LEASES, ended_s=SECONDS, now_s=SECONDS)
def test_another_boot_counts_from_now_and_never_for_longer_than_one_lease(
    lease_s: float, ended_s: float, now_s: float
) -> None:
    closed = found_dead(MasterMark(lease_s, "old boot", ended_s), "boot", now_s)

    assert abs(left_s(closed, now_s) - (lease_s + MARGIN_S)) < ROUNDING_S


def test_a_folder_that_never_had_a_master_needs_no_wait() -> None:
    assert left_s(None, 5.0) == 0.0
