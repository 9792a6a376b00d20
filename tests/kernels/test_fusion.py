"""Fusing a request's speculative tokens: the same results, fewer rows read."""

import pytest
import torch

from sparse_mla import emulated, fuse, verify
from sparse_mla.errors import WrongDtype, WrongShape
from sparse_mla.verify import Case


def chosen_rows(slots, job, token):
    _, tokens, begin, length = slots.jobs[job].tolist()
    assert token < tokens
    used = (slots.masks[begin : begin + length] >> token & 1).bool()
    return sorted(slots.indices[begin : begin + length][used].tolist())


def random_choice(tokens, slots, rows, seed):
    generator = torch.Generator().manual_seed(seed)
    indices = torch.randint(0, rows, (tokens, slots), dtype=torch.int32, generator=generator)
    indices[torch.rand(indices.shape, generator=generator) < 0.2] = -1
    return indices


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("requests", "heads"), [((3, 1, 4), 16), ((9,), 16), ((2, 0, 6), 64)])
def test_every_token_keeps_exactly_the_rows_it_chose(requests, heads, seed):
    # 30 rows for 40 slots: tokens name rows twice, and those count twice.
    indices = random_choice(sum(requests), 40, 30, seed)

    slots = fuse(indices, requests, heads)

    for job, (first, tokens, _, _) in enumerate(slots.jobs.tolist()):
        for token in range(tokens):
            expected = sorted(indices[first + token][indices[first + token] >= 0].tolist())
            assert chosen_rows(slots, job, token) == expected


def test_jobs_cover_the_tokens_once_and_fit_a_cluster():
    slots = fuse(random_choice(12, 8, 100, 0), (9, 3), heads=16)

    jobs = [(first, tokens) for first, tokens, _, _ in slots.jobs.tolist()]
    assert jobs == [(0, 4), (4, 4), (8, 1), (9, 3)]
    assert slots.max_tokens == 4


def test_rows_chosen_alike_are_listed_once():
    indices = torch.arange(50, dtype=torch.int32).repeat(4, 1)

    slots = fuse(indices, (4,), heads=16)

    assert slots.jobs.tolist() == [[0, 4, 0, 50]]
    assert slots.indices[:50].tolist() == list(range(50))
    assert slots.masks[:50].tolist() == [15] * 50


def test_a_request_that_chose_nothing_has_no_slots():
    slots = fuse(torch.full((3, 8), -1, dtype=torch.int32), (1, 2), heads=16)

    assert slots.jobs[:, 3].tolist() == [0, 0]


@pytest.mark.parametrize("blocks", [3, 6])
@pytest.mark.parametrize("requests", [(4, 2), (3, 1)])
def test_the_fused_kernel_equals_the_unfused_one(requests, blocks):
    fused = verify.make_step(Case(slots=90, requests=requests, empty=0.1, has_sinks=True))
    alone = verify.make_step(Case(slots=90, tokens=sum(requests), empty=0.1, has_sinks=True))
    alone.query.copy_(fused.query)
    alone.rows.copy_(fused.rows)
    alone.sinks.copy_(fused.sinks)
    alone.indices.fill_(-1)
    for job, (first, tokens, _, _) in enumerate(fused.jobs.tolist()):
        for token in range(tokens):
            rows = chosen_rows(fused, job, token)
            alone.indices[first + token, : len(rows)] = torch.tensor(rows, dtype=torch.int32)

    fused_counters = emulated.decode(fused, blocks)
    alone_counters = emulated.decode(alone, blocks)

    # Float32 sums in another order; both are within 1e-6 of the reference.
    torch.testing.assert_close(fused.out, alone.out, rtol=0, atol=2e-6)
    torch.testing.assert_close(fused.lse, alone.lse, rtol=0, atol=1e-5)
    assert verify.difference(fused).is_within(split=True)
    assert fused_counters.loaded_bytes == verify.loaded_bytes(fused)
    assert fused_counters.loaded_bytes < 0.8 * alone_counters.loaded_bytes


def test_a_step_without_tokens_has_no_jobs():
    slots = fuse(torch.empty(0, 8, dtype=torch.int32), (), heads=16)

    assert slots.jobs.shape == (0, 4)


def test_a_negative_index_becomes_one_that_no_cache_has():
    slots = fuse(torch.tensor([[3, -7, -1]], dtype=torch.int32), (1,), heads=16)

    assert slots.indices[:2].tolist() == [3, 2**31 - 2]


def test_the_largest_index_is_no_empty_slot():
    indices = torch.tensor([[3, 4], [2**31 - 1, -1]], dtype=torch.int32)

    slots = fuse(indices, (1, 1), heads=16)

    assert chosen_rows(slots, 0, 0) == [3, 4]
    assert chosen_rows(slots, 1, 0) == [2**31 - 2]


def test_two_indices_that_no_cache_has_stay_with_their_own_token():
    indices = torch.tensor([[-9, -7, 2**31 - 1], [3, 4, -1]], dtype=torch.int32)

    slots = fuse(indices, (2,), heads=16)

    assert chosen_rows(slots, 0, 0) == [2**31 - 2] * 3
    assert chosen_rows(slots, 0, 1) == [3, 4]


def test_bad_input_is_refused():
    indices = random_choice(4, 8, 10, 0)

    with pytest.raises(WrongDtype):
        fuse(indices.long(), (4,), heads=16)
    with pytest.raises(WrongShape, match="tokens, slots"):
        fuse(indices[0], (1,), heads=16)
    with pytest.raises(WrongShape, match="counts of 4"):
        fuse(indices, (2, 1), heads=16)
    with pytest.raises(WrongShape, match="heads"):
        fuse(indices, (4,), heads=0)
