"""Who owns which layer, and who computes which tokens."""

import pytest

from layersplit.errors import OutOfRange
from layersplit.rows import CacheShape, LayerRows, owner_map, tokens_of


def test_equal_layers_go_round_the_ranks():
    assert owner_map([LayerRows(352, 132)] * 6, 4) == (0, 1, 2, 3, 0, 1)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_no_rank_stores_more_than_a_layer_above_another(ranks):
    layers = [LayerRows(352, 132 if at < 3 or at % 4 == 2 else 0) for at in range(78)]

    stored = [0] * ranks
    for layer, owner in zip(layers, owner_map(layers, ranks), strict=True):
        stored[owner] += layer.token_bytes

    assert max(stored) - min(stored) <= 484


@pytest.mark.parametrize(("first", "end"), [(0, 8), (5, 12), (3, 4), (7, 7)])
def test_every_token_of_a_chunk_is_computed_by_one_rank(first, end):
    spans = [tokens_of(first, end, rank, 4) for rank in range(4)]

    assert [token for span in spans for token in span] == list(range(first, end))
    assert max(map(len, spans)) - min(map(len, spans)) <= 1


def test_a_cache_of_nothing_is_refused():
    with pytest.raises(OutOfRange, match="expected at least one layer and one token"):
        CacheShape((), 4)
    with pytest.raises(OutOfRange, match="expected kv from 1 and index from 0"):
        LayerRows(0, 4)
    with pytest.raises(OutOfRange, match="ranks: expected at least one, got 0"):
        owner_map([LayerRows(1, 1)], 0)
