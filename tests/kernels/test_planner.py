"""The cluster size: the first that fits one wave, else the least waves x work."""

import pytest

from sparse_mla.errors import WrongShape
from sparse_mla.planner import CLUSTER_STAGES, GB200, H200, Capacity, choose_cluster_blocks


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


@pytest.mark.parametrize("tokens", [60, 149, 256, 1000])
def test_beyond_one_wave_no_other_size_takes_less(tokens):
    def cost(blocks):
        waves = -(-tokens // GB200.clusters[blocks])
        return waves * (-(-64 // blocks) + CLUSTER_STAGES)

    chosen = choose_cluster_blocks(tokens, 2048, GB200)

    assert cost(chosen) == min(cost(blocks) for blocks in (8, 6, 5, 4, 3, 2, 1))


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
