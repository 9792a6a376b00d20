"""Tokens to text: the same text for every way of cutting, no half characters, no stop strings."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from launcher import model
from router.text import StopTexts, TextStream, held_back
from toolcall.marks import Marks, control_tokens


@pytest.fixture(scope="module")
def model_dir():
    return model.ensure("smollm2-glm")


@pytest.fixture(scope="module")
def tokenizer(model_dir):
    return Tokenizer.from_file(str(model_dir / "tokenizer.json"))


@pytest.fixture(scope="module")
def marks(model_dir):
    added = json.loads((model_dir / "tokenizer.json").read_text())["added_tokens"]
    return Marks(control_tokens(added))


def stream(tokenizer, marks, ids, cuts):
    """All pieces when the ids arrive in chunks that end at these cuts."""
    tags = [marks.token_of(tag) for tag in ("<tool_call>", "</tool_call>")]
    text = TextStream(tokenizer, marks, frozenset(tags))
    edges = [0, *sorted(cuts), len(ids)]
    pieces = [text.push(ids[start:end]) for start, end in itertools.pairwise(edges)]
    return [*pieces, text.flush()], text


def encode(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


@given(st.data())
def test_every_cut_gives_the_text_itself(tokenizer, marks, data):
    original = data.draw(st.text(alphabet='aé漢🙂 \n<>&{}"', max_size=30))
    ids = encode(tokenizer, original)
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=5))

    pieces, _ = stream(tokenizer, marks, ids, cuts)

    assert "".join(pieces) == original
    assert all("\ufffd" not in piece for piece in pieces)


def test_a_character_that_a_limit_cut_in_two_is_shown_and_not_dropped(tokenizer, marks):
    ids = encode(tokenizer, "ok 漢𓀀")
    assert len(ids) > 3, (
        "the last character must be more than one token for this test to mean anything"
    )

    pieces, _ = stream(tokenizer, marks, ids[:-1], cuts=range(len(ids) - 1))

    assert "".join(pieces).startswith("ok ")
    assert "\ufffd" in pieces[-1]
    assert all("\ufffd" not in piece for piece in pieces[:-1])


def test_a_control_token_is_a_mark_and_text_that_spells_it_is_not(tokenizer, marks):
    spelt = [*encode(tokenizer, "<tool"), *encode(tokenizer, "_call>")]
    ids = [
        marks.token_of("<tool_call>"),
        *spelt,
        marks.token_of("<|user|>"),
        *encode(tokenizer, "x"),
    ]

    pieces, _ = stream(tokenizer, marks, ids, cuts=range(len(ids)))

    assert "".join(pieces) == marks.encode("<tool_call>") + "<tool_call>x"


def test_the_tokens_of_a_length_of_text_are_counted(tokenizer, marks):
    ids = [*encode(tokenizer, "one two"), marks.token_of("<tool_call>"), *encode(tokenizer, "f")]

    pieces, text = stream(tokenizer, marks, ids, cuts=())

    assert text.tokens_before("".join(pieces).index(marks.encode("<tool_call>"))) == len(ids) - 2
    assert text.tokens_before(0) == 0
    assert text.tokens_before(len("one")) == 1
    assert text.tokens_before(len("one t")) is None


def until_stop(text, cuts, stops):
    stop = StopTexts(stops)
    edges = [0, *sorted(cuts), len(text)]
    pieces = [stop.push(text[start:end]) for start, end in itertools.pairwise(edges)]
    return [*pieces, stop.flush()], stop.has_stopped


@given(st.lists(st.integers(0, 23), max_size=6))
def test_nothing_of_a_stop_string_comes_out_for_any_cut(cuts):
    pieces, has_stopped = until_stop("one two three four five", cuts, ["three"])

    assert "".join(pieces) == "one two "
    assert has_stopped


def test_text_that_only_looks_like_a_stop_string_is_released():
    pieces, has_stopped = until_stop("one two thr", range(11), ["three"])

    assert "".join(pieces) == "one two thr"
    assert not has_stopped


def test_the_longest_possible_beginning_is_held_back():
    assert held_back("abc", ["cab"]) == 1
    assert held_back("aba", ["abab"]) == 3
    assert held_back("abc", ["x"]) == 0
    assert held_back("abc", []) == 0
