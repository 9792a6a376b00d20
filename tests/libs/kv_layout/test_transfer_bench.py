"""The bench of transfers holds every read to the others, not the first alone."""

import pytest

from benches.kv_layout.transfers import figures_of, reads_of


def figures(layers, packed):
    """By name, from (descriptors, bytes) of each read of either layout."""
    reads = {
        layout: reads_of(
            [
                {
                    "transfers": [
                        {
                            "descriptors": count,
                            "bytes": size,
                            "seconds": count * 2e-6,
                            "request_seconds": 1,
                        }
                    ],
                    "tokens": [7],
                }
                for count, size in found
            ]
        )
        for layout, found in (("LBHNC", layers), ("BLHNC", packed))
    }
    return {figure.name: figure for figure in figures_of(reads, [7], True)}


def test_reads_that_agree_are_reported_as_one():
    found = figures([(60, 100)] * 3, [(2, 100)] * 3)

    assert found["descriptors LBHNC"].ok
    assert found["bytes BLHNC / LBHNC"].ok
    assert found["fewer descriptors"].value == 30
    assert found["a descriptor more costs"].value == pytest.approx(2)


@pytest.mark.parametrize(
    ("layers", "packed", "missed"),
    [
        ([(60, 100), (60, 100), (15, 100)], [(2, 100)] * 3, "descriptors LBHNC"),
        ([(60, 100)] * 3, [(2, 100), (2, 100), (7, 100)], "descriptors BLHNC"),
        ([(60, 100), (60, 100), (15, 100)], [(2, 100)] * 3, "fewer descriptors"),
        ([(60, 100)] * 3, [(2, 100), (2, 100), (7, 100)], "fewer descriptors"),
        ([(60, 100)] * 3, [(2, 100), (2, 100), (2, 99)], "bytes BLHNC / LBHNC"),
    ],
)
def test_a_later_read_that_differs_is_a_missed_target(layers, packed, missed):
    assert not figures(layers, packed)[missed].ok
