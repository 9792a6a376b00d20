"""Block-major KV on the CPU: rows that real engines exchange, and peers whose rows differ."""

import contextlib
from types import SimpleNamespace

import pytest

from benches.kv_layout.transfers import Load, ask, random_prompt, started_engine
from engine import packed_blocks
from engine.errors import PeerNotPacked
from launcher import model

pytestmark = [
    pytest.mark.engine,
    # Importing vLLM and torch warns of their own deprecations.
    pytest.mark.filterwarnings("ignore"),
]
CONTEXT = 200
BLOCKS = 7  # of 32 tokens
ROW_BYTES = (
    30 * 3 * 32 * 2 * 64 * 2
)  # layers, heads, tokens, keys and values, values of a head, bf16


def test_upstream_still_needs_both_halves_of_the_plugin():
    assert packed_blocks.is_layout_unlisted()
    assert packed_blocks.is_region_per_layer()


def test_nothing_is_changed_unless_the_layout_is_asked_for(monkeypatch):
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    stock = CPUAttentionBackend.__dict__["supported_kv_cache_layouts"]
    for asked in (None, "LBHNC"):
        if asked is None:
            monkeypatch.delenv("VLLM_KV_CACHE_LAYOUT", raising=False)
        else:
            monkeypatch.setenv("VLLM_KV_CACHE_LAYOUT", asked)

        packed_blocks.install()

        assert CPUAttentionBackend.__dict__["supported_kv_cache_layouts"] is stock


def test_a_context_is_read_in_one_descriptor_per_block_and_answered_as_if_prefilled_here():
    load = Load(model.ensure("smollm2"), CONTEXT, 1, "auto", "host")
    prompt = random_prompt(CONTEXT)
    with contextlib.ExitStack() as stack:
        producer, consumer = (
            stack.enter_context(started_engine(role, "BLHNC", load))
            for role in ("producer", "consumer")
        )
        alone = ask(consumer, prompt, None)

        offer = ask(producer, prompt, None)["offer"]
        answer = ask(consumer, prompt, offer)

    (transfer,) = answer["transfers"]
    assert (transfer["descriptors"], transfer["bytes"]) == (BLOCKS, BLOCKS * ROW_BYTES)
    assert answer["tokens"] == alone["tokens"]


WORKER = SimpleNamespace(transfer_tp_size=2, block_size=32, block_len_per_layer=[4096])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kv_cache_layout": "LBHNC"}, "KV cache layout BLHNC, got LBHNC"),
        ({"tp": 4}, "tensor-parallel size 2, got 4"),
        ({"block_size": 64}, "block size 32, got 64"),
        ({"block_lens": [2048, 2048]}, r"regions of \[4096\], got \[2048, 2048\]"),
    ],
)
def test_a_peer_with_other_rows_is_refused(change, message):
    same = {"kv_cache_layout": "BLHNC", "block_size": 32, "block_lens": [4096], "tp": 2}
    packed_blocks.require_same_rows(WORKER, SimpleNamespace(**same), same["tp"])

    peer = {**same, **change}
    with pytest.raises(PeerNotPacked, match=f"expected a peer with {message}"):
        packed_blocks.require_same_rows(WORKER, SimpleNamespace(**peer), peer["tp"])


def kv_caches(layers, blocks, page_bytes):
    """A packed pool as vLLM hands it over: one view per layer over one allocation."""
    import torch

    pool = torch.arange(blocks * layers * page_bytes, dtype=torch.int32).to(torch.int8)
    rows = pool.view(blocks, layers, 1, page_bytes // 2, 2)
    return {f"layer.{at}": rows[:, at] for at in range(layers)}


def worker_of(caches, **change):
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    spec = FullAttentionSpec(block_size=8, num_kv_heads=1, head_size=1, dtype=torch.int8)
    return SimpleNamespace(
        **{
            "kv_cache_layout": "BLHNC",
            "use_host_buffer": False,
            "pp_size": 1,
            "kv_cache_config": SimpleNamespace(transfer_groups=[object()]),
            "_layer_specs": dict.fromkeys(caches, spec),
            **change,
        }
    )


def test_every_layer_is_given_the_same_rows_over_the_whole_pool():
    import torch

    caches = kv_caches(layers=3, blocks=5, page_bytes=16)

    rows = packed_blocks.rows_of(worker_of(caches), caches)

    assert list(rows) == list(caches)
    assert all(cache is rows["layer.0"] for cache in rows.values())
    whole = torch.stack(list(caches.values()), dim=1).reshape(5, 1, 1, 48)
    assert torch.equal(rows["layer.0"], whole)


@pytest.mark.parametrize(
    "change",
    [
        {"kv_cache_layout": "LBHNC"},
        {"use_host_buffer": True},
        {"pp_size": 2},
        {"kv_cache_config": SimpleNamespace(transfer_groups=[object(), object()])},
        {"_layer_specs": {}},
    ],
)
def test_what_is_not_one_kind_of_row_keeps_vllms_regions(change):
    caches = kv_caches(layers=3, blocks=5, page_bytes=16)

    assert packed_blocks.rows_of(worker_of(caches, **change), caches) is None


def test_layers_of_several_allocations_keep_vllms_regions():
    caches = kv_caches(2, 5, 16)
    caches["layer.1"] = caches["layer.1"].clone()

    assert packed_blocks.rows_of(worker_of(caches), caches) is None
