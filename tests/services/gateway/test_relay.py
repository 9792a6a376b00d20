"""What is read from the passing bytes, however the network cuts them."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import UpstreamBroken
from gateway.relay import AnswerMeter, Passage, StreamEnd, Usage, is_openai_error

USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 8},
}


def chunk(content: str = "", **more: Any) -> dict[str, Any]:
    """A chunk of a chat stream."""
    return {"choices": [{"index": 0, "delta": {"content": content}}], "usage": None, **more}


def stream(chunks: list[Any], end: str = "\n\n", spaces: bool = True) -> bytes:
    """The events of these chunks; text stands for itself."""
    separators = (", ", ": ") if spaces else (",", ":")
    events = [c if isinstance(c, str) else json.dumps(c, separators=separators) for c in chunks]
    return "".join(f"data: {event}{end}" for event in events).encode()


def feed(meter: AnswerMeter, pieces: list[bytes]) -> Passage:
    """The sum of what passes."""
    forward = b""
    for piece in pieces:
        passage = meter.feed(piece)
        forward += passage.forward
        if passage.end is not None:
            return Passage(forward, passage.end, passage.last)
    return Passage(forward)


def cut(content: bytes, places: list[int]) -> list[bytes]:
    """The content in pieces."""
    edges = [0, *sorted(place % (len(content) + 1) for place in places), len(content)]
    return [content[a:b] for a, b in itertools.pairwise(edges)]


@given(
    places=st.lists(st.integers(0, 10_000), max_size=30),
    end=st.sampled_from(["\n\n", "\r\n\r\n", "\r\r"]),
    spaces=st.booleans(),
    strips=st.booleans(),
)
def test_no_cut_of_the_bytes_changes_what_passes_or_what_is_counted(
    places: list[int], end: str, spaces: bool, strips: bool
) -> None:
    chunks = [chunk("a"), chunk('"usage": {"prompt_tokens": 7}'), chunk("[DONE]"), chunk("")]
    usage = {"choices": [], "usage": USAGE}
    whole = stream([*chunks, usage, "[DONE]"], end, spaces)
    meter = AnswerMeter(strips_usage=strips)

    passage = feed(meter, cut(whole, places))

    assert passage.end is StreamEnd.DONE
    expected = chunks if strips else [*chunks, usage]
    assert passage.forward == stream(expected, end, spaces)
    assert passage.last == stream(["[DONE]"], end)
    assert meter.usage == Usage(9, 8, 3)


def test_text_of_an_answer_cannot_imitate_usage_an_end_or_an_error() -> None:
    texts = ["data: [DONE]\n\n", 'data: {"error": {}}', '{"usage": {"completion_tokens": 1}}']
    whole = stream([chunk(text) for text in texts])
    meter = AnswerMeter(strips_usage=True)

    passage = feed(meter, [whole])

    assert passage == Passage(whole)
    assert meter.usage is None
    assert meter.least_completion_tokens == 3


def test_usage_beside_a_choice_is_counted_and_stays() -> None:
    whole = stream([chunk("a", usage=USAGE), "[DONE]"])
    meter = AnswerMeter(strips_usage=True)

    passage = feed(meter, [whole])

    assert passage.forward == stream([chunk("a", usage=USAGE)])
    assert meter.usage == Usage(9, 8, 3)


def test_the_last_of_several_usages_counts() -> None:
    growing = [chunk("a", usage={**USAGE, "completion_tokens": n}) for n in (1, 2)]
    meter = AnswerMeter(strips_usage=False)

    feed(meter, [stream(growing)])

    assert meter.usage == Usage(9, 8, 2)


def test_an_error_event_ends_the_stream() -> None:
    error = {"error": {"message": "no"}}
    meter = AnswerMeter(strips_usage=False)

    passage = feed(meter, [stream([chunk("a"), error, chunk("b"), "[DONE]"])])

    assert passage == Passage(stream([chunk("a")]), StreamEnd.ERROR, stream([error]))


def test_comments_pass() -> None:
    meter = AnswerMeter(strips_usage=True)

    passage = feed(meter, [b": ping\n\n", stream(["[DONE]"])])

    assert passage.forward == b": ping\n\n"
    assert passage.end is StreamEnd.DONE


@pytest.mark.parametrize(
    "usage",
    [
        None,
        "many",
        {"prompt_tokens": -1},
        {"prompt_tokens": 1.5, "completion_tokens": 1},
        {"prompt_tokens": True},
        {"completion_tokens": "3"},
    ],
)
def test_usage_that_makes_no_sense_is_none(usage: Any) -> None:
    meter = AnswerMeter(strips_usage=False)

    meter.feed_whole(json.dumps({"choices": [], "usage": usage}).encode())

    assert meter.usage is None


def test_cached_tokens_never_exceed_the_prompt() -> None:
    usage = {
        "prompt_tokens": 5,
        "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 9},
    }
    meter = AnswerMeter(strips_usage=False)

    meter.feed_whole(json.dumps({"usage": usage}).encode())

    assert meter.usage == Usage(5, 5, 1)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"null"])
def test_an_answer_that_is_no_json_object_is_broken(body: bytes) -> None:
    with pytest.raises(UpstreamBroken):
        AnswerMeter(strips_usage=False).feed_whole(body)


def test_an_endless_event_is_broken() -> None:
    meter = AnswerMeter(strips_usage=False)

    with pytest.raises(UpstreamBroken):
        feed(meter, [b"x" * (1 << 20)] * 5)


def test_only_openais_shape_is_an_openai_error() -> None:
    assert is_openai_error(b'{"error": {"message": "m"}}')
    assert not is_openai_error(b'{"error": "m"}')
    assert not is_openai_error(b'{"detail": "m"}')
    assert not is_openai_error(b"m")
