"""The KV handoff inside a worker: who offers, who pulls, and what never comes from a client."""

from engine.engine_args import kv_transfer_config
from engine.requests import offered_kv, wants_offer
from engine.settings import EngineSettings


def settings(tmp_path, **names):
    return EngineSettings(model_dir=tmp_path, model_name="m", **names)


def test_only_prefill_offers_kv_and_only_when_asked():
    asked = {"extra_args": {"kv_handoff": "offer"}}

    assert wants_offer(asked, "prefill")
    assert not wants_offer(asked, "decode")
    assert not wants_offer({"extra_args": None}, "prefill")
    assert not wants_offer({}, "prefill")


def test_an_offer_is_read_from_the_prefill_result_alone():
    offer = {"do_remote_prefill": True, "remote_block_ids": [[1]]}

    assert offered_kv({"prefill_result": {"disaggregated_params": {"kv_transfer_params": offer}}})
    # Where a client's own field would stand: top level and extra_args are never looked at.
    assert offered_kv({"kv_transfer_params": offer}) is None
    assert offered_kv({"extra_args": {"kv_transfer_params": offer}}) is None
    assert offered_kv({"prefill_result": None}) is None


def test_lost_kv_is_recomputed_with_and_without_the_second_tier(tmp_path):
    alone = kv_transfer_config(settings(tmp_path), "decode")
    both = kv_transfer_config(settings(tmp_path, mooncake_config=tmp_path / "m.json"), "prefill")

    assert alone["kv_connector"] == "NixlConnector"
    assert [part["kv_connector"] for part in both["kv_connector_extra_config"]["connectors"]] == [
        "NixlConnector",
        "MooncakeStoreConnector",
    ]
    assert alone["kv_load_failure_policy"] == both["kv_load_failure_policy"] == "recompute"


def test_prefill_holds_its_blocks_longer_than_vllms_default(tmp_path):
    config = kv_transfer_config(settings(tmp_path), "prefill")

    assert 60 <= config["kv_connector_extra_config"]["kv_lease_duration"] <= 120
