"""Counters from vLLM's stats, in the shapes that vLLM 0.32 reports."""

from types import SimpleNamespace

from engine.counters import EngineCounters


def scheduler_stats(connector_stats):
    return SimpleNamespace(
        num_running_reqs=2,
        num_waiting_reqs=1,
        kv_cache_usage=0.25,
        kv_connector_stats=connector_stats,
    )


NIXL = {
    "transfer_duration": [0.001, 0.002],
    "bytes_transferred": [2_949_120, 1_000],
    "num_descriptors": [30, 1],
    "num_failed_transfers": [1],
    "num_failed_notifications": [],
    "num_failed_handshakes": [1],
    "num_kv_expired_reqs": [1],
}
MOONCAKE = {
    "save_put": [{"num_bytes": 500, "num_failed_keys": 0}, {"num_bytes": 7, "num_failed_keys": 2}],
    "load_get": [{"num_bytes": 90, "num_failed_keys": 1}],
    "lookup_exists": [{"num_bytes": 0, "num_failed_keys": 0}],
}


def test_both_connectors_are_counted_apart():
    counters = EngineCounters(kv_blocks_total=400)

    counters.record(
        scheduler_stats({"NixlPullConnector": NIXL, "MooncakeStoreConnector": MOONCAKE}), None
    )

    assert counters.nixl_bytes_pulled == 2_950_120
    assert counters.nixl_descriptors == 31
    assert counters.nixl_failures == 2
    assert counters.nixl_leases_expired == 1
    assert counters.kvtier_bytes_stored == 507
    assert counters.kvtier_bytes_loaded == 90
    assert counters.kvtier_failures == 3
    assert counters.kv_blocks_used == 100
    assert counters.running_requests == 3


def test_a_single_nixl_connector_reports_without_a_name():
    counters = EngineCounters()

    counters.record(scheduler_stats(NIXL), None)

    assert counters.nixl_bytes_pulled == 2_950_120


def test_tokens_add_up_over_steps():
    counters = EngineCounters()
    step = SimpleNamespace(
        prompt_token_stats=SimpleNamespace(total=37, cached_tokens=32), num_generation_tokens=1
    )

    counters.record(None, step)
    counters.record(None, step)

    assert (counters.prompt_tokens, counters.cached_tokens, counters.generated_tokens) == (
        74,
        64,
        2,
    )
