"""The cluster size: the first that fits one wave, else the least waves x work."""

import pytest

from sparse_mla.errors import WrongShape, WrongValue
from sparse_mla.planner import Capacity, choose_cluster_blocks

# A GPC's count of multiprocessors differs by part; a real device is asked.
GB200 = Capacity.of_gpcs((18, 18, 18, 18, 18, 18, 20, 20))
"""148 multiprocessors in eight GPCs."""
H200 = Capacity.of_gpcs((16, 16, 16, 16, 16, 16, 18, 18))
"""132 multiprocessors."""


@pytest.mark.parametrize(("tokens", "blocks"), [(1, 8), (15, 8), (20, 6), (30, 4), (35, 3)])
def test_the_largest_cluster_that_runs_in_one_wave_is_taken(tokens, blocks):
    assert choose_cluster_blocks(tokens, 2048, GB200) == blocks
    assert tokens <= GB200.clusters[blocks]


def test_a_cluster_lies_within_one_gpc():
    capacity = Capacity.of_gpcs((18, 18))

    assert capacity.clusters == {1: 36, 2: 18, 3: 12, 4: 8, 5: 6, 6: 6, 7: 4, 8: 4}


def test_seven_blocks_are_never_chosen_because_eight_fit_as_often():
    for capacity in (GB200, H200):
        chosen = {choose_cluster_blocks(tokens, 2048, capacity) for tokens in range(1, 400)}

        assert 7 not in chosen
        assert chosen >= {3, 4, 5, 6, 8}


# By hand, 64 stages a token: waves x (stages of a block + 7), for 8, 6, 5, 4, 3, 2 and 1 blocks.
@pytest.mark.parametrize(
    ("tokens", "blocks"),
    [
        (60, 2),  # 1 x 39; 4 blocks: 2 x 23
        (149, 4),  # 5 x 23; 3 blocks: 4 x 29, 2 blocks: 3 x 39
        (256, 1),  # 2 x 71; 2 blocks: 4 x 39
        (1000, 1),  # 7 x 71; 2 blocks: 14 x 39
    ],
)
def test_beyond_one_wave_no_other_size_takes_less(tokens, blocks):
    assert choose_cluster_blocks(tokens, 2048, GB200) == blocks


def test_more_tokens_than_multiprocessors_take_one_block_each():
    assert choose_cluster_blocks(4 * 148, 2048, GB200) == 1


@pytest.mark.parametrize(
    ("slots", "blocks"), [(2048, 8), (256, 8), (200, 6), (160, 5), (64, 3), (1, 3)]
)
def test_short_lists_get_no_more_blocks_than_stages(slots, blocks):
    assert choose_cluster_blocks(4, slots, GB200) == blocks


def test_a_device_that_runs_no_large_cluster_gets_a_small_one():
    assert choose_cluster_blocks(2, 2048, Capacity.of_gpcs((4, 4))) == 4


def test_a_step_without_clusters_is_refused():
    with pytest.raises(WrongShape, match="at least one cluster"):
        choose_cluster_blocks(0, 2048, GB200)


@pytest.mark.parametrize("slots", [1, 2048])
def test_a_device_that_runs_no_cluster_is_refused(slots):
    with pytest.raises(WrongValue, match="room for one cluster"):
        choose_cluster_blocks(2, slots, Capacity.of_gpcs(()))
