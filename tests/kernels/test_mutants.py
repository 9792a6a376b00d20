"""The checks of the emulated kernel can fail: broken copies of the kernel are caught.

A handful, one of each kind; `./tools/bench kernels` catches all of them.
"""

import pytest

from sparse_mla import build, races
from tests.mutants import sparse_mla as mutants

CHOSEN = (
    "scales_in_linear_order",
    "empty_slots_are_loaded",
    "accumulator_is_not_rescaled",
    "freed_parity_is_wrong",
    "block_leaves_while_it_is_read",
    "lane_0_arrives_for_lanes_still_writing",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("mutants")


def test_the_real_kernel_passes_what_catches_the_mutants():
    assert mutants.problems(build.emulator_library()) == []


@pytest.mark.engine
@pytest.mark.parametrize("name", CHOSEN)
def test_a_broken_kernel_is_caught(name, folder):
    mutant = next(mutant for mutant in mutants.MUTANTS if mutant.name == name)

    assert mutants.catch(mutant, folder) is not None


def test_every_mutant_still_applies_to_the_sources(folder):
    for mutant in mutants.MUTANTS:
        if mutant.name not in CHOSEN:
            mutants.copy_sources(mutant, folder)


@pytest.mark.engine
def test_the_real_kernel_has_no_race(folder):
    program = races.build_program(folder)

    assert (
        races.first_race(program, races.Watched(row_tiles=1, split=True, cluster_blocks=2)) is None
    )
