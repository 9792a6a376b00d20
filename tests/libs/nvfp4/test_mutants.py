"""The comparison with golden fails for native code with one rule broken.

A few in the fast part, all in the slow part and in the bench.
"""

import pytest

from nvfp4.native.library import Library, load
from tests.mutants import nvfp4_rows as mutants

FAST = ("linear scale order", "ties away from zero", "sums are not rescaled")


def marked():
    return [
        pytest.param(
            mutant, id=mutant.name, marks=() if mutant.name in FAST else pytest.mark.engine
        )
        for mutant in mutants.MUTANTS
    ]


@pytest.mark.parametrize("part", ["codec", "attention"])
def test_the_real_code_passes_what_catches_the_mutants(part, isa):
    assert mutants.agrees(Library(load().handle, (isa,)), part)


@pytest.mark.parametrize("mutant", marked())
def test_a_broken_rule_is_caught(mutant, tmp_path):
    if mutant.isa not in load().supported:
        pytest.skip(f"this processor has no {mutant.isa.value}")

    assert mutants.is_caught(mutant, tmp_path)
