"""The split cache on 2 and 4 ranks over gloo: bit-equal to replicated KV, bytes as promised."""

import json
import os
import subprocess
import sys

import pytest

from layersplit.rows import tokens_of

pytestmark = pytest.mark.engine
WORLDS = (2, 4)
RUN_S = 120
LAYERS = [(24, 8), (24, 8), (24, 0), (32, 8), (24, 0), (24, 12)]
CHUNK_ENDS = (37, 58, 59)
CAPACITY = 64
OVERLAPS = ("none", "indexer", "next_layer")


@pytest.fixture(scope="module", params=WORLDS)
def found(request, tmp_path_factory):
    """What every rank found, by rank."""
    folder = tmp_path_factory.mktemp("ranks")
    run = subprocess.run(
        [sys.executable, "-m", "tests.libs.layersplit.ranks", str(request.param), str(folder)],
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    return [json.loads((folder / f"rank{r}.json").read_text()) for r in range(request.param)]


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_outputs_are_bit_equal_to_those_over_replicated_kv(found, overlap):
    assert all(rank["equality"][overlap]["is_equal"] for rank in found)


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_a_rank_stores_its_own_layers_and_receives_the_others_once_per_chunk(found, overlap):
    for rank, results in enumerate(found):
        traffic = results["equality"][overlap]
        others = [
            rows for rows, owner in zip(LAYERS, traffic["owners"], strict=True) if owner != rank
        ]
        own = [rows for rows, owner in zip(LAYERS, traffic["owners"], strict=True) if owner == rank]

        assert traffic["stored"] == CAPACITY * sum(kv + index for kv, index in own)
        assert traffic["slots"] == 2 * CAPACITY * (32 + 12)
        assert traffic["received_kv"] == sum(CHUNK_ENDS) * sum(kv for kv, _ in others)
        assert traffic["received_index"] == sum(CHUNK_ENDS) * sum(index for _, index in others)
        computed_by_others = CHUNK_ENDS[-1] - tokens_computed(rank, len(found))
        assert traffic["received_new_rows"] == computed_by_others * sum(map(sum, own))


def tokens_computed(rank, ranks):
    """How many tokens of all chunks one rank computes."""
    chunks = zip((0, *CHUNK_ENDS), CHUNK_ENDS, strict=False)
    return sum(len(tokens_of(first, end, rank, ranks)) for first, end in chunks)


def test_replicated_kv_receives_every_row_that_others_computed_and_nothing_else(found):
    for rank, results in enumerate(found):
        traffic = results["equality"]["replicated"]
        computed_by_others = CHUNK_ENDS[-1] - tokens_computed(rank, len(found))

        assert traffic["received_new_rows"] == computed_by_others * sum(map(sum, LAYERS))
        assert traffic["received_kv"] == traffic["received_index"] == traffic["slots"] == 0


def test_all_ranks_together_store_what_one_rank_stores_of_replicated_kv(found):
    stored = sum(results["equality"]["next_layer"]["stored"] for results in found)

    assert stored == found[0]["equality"]["replicated"]["stored"]
    assert stored == CAPACITY * sum(kv + index for kv, index in LAYERS)


def test_the_indexer_selects_while_the_layers_kv_is_still_at_its_owner(found):
    for results in found:
        assert results["indexer_overlap"] == {"is_equal": True, "was_in_time": True}


def test_the_next_layers_cached_rows_arrive_before_a_layer_has_attended(found):
    for results in found:
        ahead, not_ahead = (results["next_layer_overlap"][way] for way in ("next_layer", "indexer"))

        assert ahead == {"is_equal": True, "in_time": [True] * 5}
        assert not_ahead == {"is_equal": True, "in_time": [False] * 5}


def test_parts_of_the_ranks_serve_one_request_after_another_in_groups_made_once(found):
    for rank, results in enumerate(found):
        assert results["parts_of_the_job"] == {
            "is_equal": [True, True],
            "members": True,
            "made_by_caches": 0,
            "has_groups_of_rank_0": rank == 0,
        }


def test_rows_that_nobody_sends_are_waited_for_as_long_as_the_groups_were_given(found):
    owner = found[0]["dead_rank"]

    # The groups' timeout is 2 s, the job's 60 s; a busy machine may take its time to raise.
    assert 1.5 < owner["waited_s"] < 30
    assert "imed out" in owner["error"]


def test_a_layer_that_fails_leaves_both_slots_free(found):
    for results in found:
        assert len(results["failures"]) == 9
        assert all(left == [2, 0] for left in results["failures"].values())


@pytest.mark.parametrize(
    "mutant",
    [
        "receives_at_the_beginning",
        "forgets_new_rows",
        "takes_a_slot_that_is_read",
        "reads_without_waiting",
    ],
)
def test_a_broken_rule_shows_in_the_outputs(found, mutant):
    # On two ranks neighbouring layers have different owners: no rank ever holds two slots.
    shows = mutant != "takes_a_slot_that_is_read" or len(found) > 2

    assert all(results["mutants"][mutant] == shows for results in found)


@pytest.mark.parametrize(
    ("attempt", "error", "message"),
    [
        ("dtype", "WrongRows", "kv: expected uint8 ["),
        ("shape", "WrongRows", "24] contiguous, got ["),
        ("no_index", "WrongRows", "index: expected uint8 ["),
        ("needless_index", "WrongRows", "index: expected None: the layer has no indexer"),
        ("layer", "OutOfRange", "layer: expected 0 to 5, got 6"),
        ("tokens", "OutOfRange", "tokens: expected 0 <= first <= end <= 64, got first 60, end 65"),
        ("fetch_tokens", "OutOfRange", "got first 0, end 65"),
        ("released", "FetchReleased", "layer 0: expected a fetch that is held"),
        ("three_layers", "SlotsBusy", "layer 2: expected a free slot, but layers [0, 1] hold both"),
        ("released_twice", "SlotsBusy", "layer 2: expected a free slot, but layers [0, 1] hold"),
        ("gap", "AppendOutOfOrder", "layer 0: expected a chunk that begins with token 0, got 8"),
        ("appended_again", "AppendOutOfOrder", "layer 3: expected a chunk that begins with token"),
        ("never_appended", "NotAppended", "layer 0: expected at most the 0 appended tokens, got 8"),
        ("extended_beyond", "NotAppended", "layer 0: expected at most the 0 appended tokens"),
        ("other_ranks", "WrongGroups", "expected three groups of the same ranks, got [["),
        ("no_member", "WrongGroups", "expected groups that this rank is in, got rank "),
        ("in_two_parts", "WrongGroups", "expected each rank in one part, got [[0, 1"),
        ("ranks_disagree", "RanksDisagree", "rank 1: expected rank 0's cache"),
    ],
)
def test_wrong_input_is_refused_on_every_rank_before_anything_is_sent(
    found, attempt, error, message
):
    for results in found:
        name, text = results["refusals"][attempt]
        assert name == error
        assert message in text
