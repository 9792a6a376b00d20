"""The laptop's models: built once, proven by a digest, rebuilt when they do not match."""

import json

import pytest

from launcher import model


@pytest.fixture
def built(tmp_path):
    """A cache with one built model, linked from the real one so that nothing is converted."""
    source = model.ensure("smollm2")
    (tmp_path / "smollm2").mkdir()
    for file in source.iterdir():
        (tmp_path / "smollm2" / file.name).symlink_to(file)
    return tmp_path


def test_a_whole_model_is_taken_as_it_is(built):
    said = []

    assert model.ensure("smollm2", built, said.append) == built / "smollm2"
    assert said == []


@pytest.mark.engine  # converts 135 million weights
def test_a_model_without_its_digest_is_built_again(built):
    (built / "smollm2" / "digest").unlink()
    said = []

    folder = model.ensure("smollm2", built, said.append)

    assert len(said) == 2
    assert (folder / "digest").read_text() == model.MODELS["smollm2"].sha256
    assert not (folder / "model.safetensors").is_symlink()


@pytest.mark.engine
def test_weights_that_differ_are_refused_and_leave_no_model(tmp_path, monkeypatch):
    altered = model.Model("smollm2", "0" * 64, has_glm_tokens=False)
    monkeypatch.setitem(model.MODELS, "smollm2", altered)

    with pytest.raises(model.ModelNotBuilt, match=r"expected model\.safetensors with sha256 0000"):
        model.ensure("smollm2", tmp_path, lambda _: None)
    assert not (tmp_path / "smollm2").exists()


def test_an_unknown_name_is_refused_by_naming_the_known_ones(tmp_path):
    with pytest.raises(model.ModelNotBuilt, match=r"smollm2.*got 'gpt-9'"):
        model.ensure("gpt-9", tmp_path)


def test_the_glm_variant_has_more_tokens_and_ends_with_glms_turns():
    plain, glm = model.ensure("smollm2"), model.ensure("smollm2-glm")
    config = json.loads((glm / "config.json").read_text())
    generation = json.loads((glm / "generation_config.json").read_text())

    assert config["vocab_size"] > json.loads((plain / "config.json").read_text())["vocab_size"]
    assert len(generation["eos_token_id"]) == 3
