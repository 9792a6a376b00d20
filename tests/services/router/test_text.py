"""Tokens to text: the same text for every way of cutting, no half characters, no stop strings."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from launcher import model
from router.domain import Tokens
from router.text import TextStream, held_back


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_file(str(model.ensure("smollm2") / "tokenizer.json"))


def stream(tokenizer, ids, cuts, stops=()):
    """All deltas when the ids arrive in chunks that end at these cuts."""
    text = TextStream(tokenizer, stops)
    edges = [0, *sorted(cuts), len(ids)]
    deltas = []
    for start, end in itertools.pairwise(edges):
        finish = "length" if end == len(ids) else None
        deltas.append(text.push(Tokens(tuple(ids[start:end]), finish)))
        if deltas[-1].finish_reason is not None:
            break
    return deltas


@given(st.data())
def test_every_cut_gives_the_text_itself(tokenizer, data):
    original = data.draw(st.text(alphabet='aé漢🙂 \n<>&{}"', max_size=30))
    ids = tokenizer.encode(original, add_special_tokens=False).ids
    if not ids:
        return
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=5))

    deltas = stream(tokenizer, ids, cuts)

    assert "".join(delta.text for delta in deltas) == original
    assert all("\ufffd" not in delta.text for delta in deltas)


def test_a_character_that_a_limit_cut_in_two_is_shown_and_not_dropped(tokenizer):
    ids = tokenizer.encode("ok 漢𓀀", add_special_tokens=False).ids
    assert len(ids) > 3, (
        "the last character must be more than one token for this test to mean anything"
    )

    deltas = stream(tokenizer, ids[:-1], cuts=range(len(ids) - 1))

    assert "".join(delta.text for delta in deltas).startswith("ok ")
    assert "\ufffd" in deltas[-1].text
    assert all("\ufffd" not in delta.text for delta in deltas[:-1])


@given(st.data())
def test_nothing_of_a_stop_string_comes_out_for_any_cut(tokenizer, data):
    ids = tokenizer.encode("one two three four five", add_special_tokens=False).ids
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=6))

    deltas = stream(tokenizer, ids, cuts, stops=("three",))

    assert "".join(delta.text for delta in deltas) == "one two "
    assert deltas[-1].finish_reason == "stop"


def test_text_that_only_looks_like_a_stop_string_is_released(tokenizer):
    ids = tokenizer.encode("one two thr", add_special_tokens=False).ids

    deltas = stream(tokenizer, ids, cuts=range(len(ids)), stops=("three",))

    assert "".join(delta.text for delta in deltas) == "one two thr"
    assert deltas[-1].finish_reason == "length"


def test_the_longest_possible_beginning_is_held_back():
    assert held_back("abc", ["cab"]) == 1
    assert held_back("aba", ["abab"]) == 3
    assert held_back("abc", ["x"]) == 0
    assert held_back("abc", []) == 0
