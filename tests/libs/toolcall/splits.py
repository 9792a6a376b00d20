"""Every way to cut an answer that the tests try, and what its events come to in the end."""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from toolcall.errors import Fault
from toolcall.events import (
    ArgumentsDelta,
    CallEnded,
    CallStarted,
    ContentDelta,
    Event,
    Finished,
    ReasoningDelta,
)

PAIRS_UP_TO = 40
"""Characters up to which every pair of cuts is tried: 780 splits."""


@dataclass
class Answer:
    """What a client has in the end."""

    reasoning: str = ""
    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Name and arguments of the calls that were delivered whole."""
    begun: tuple[str, str] | None = None
    """A live call that was not delivered to its end."""
    finish: str | None = None
    fault: Fault | None = None


def splits(text: str, pairs_up_to: int = PAIRS_UP_TO) -> Iterator[list[str]]:
    """Every way to cut the text that the tests try."""
    size = len(text)
    yield [text]
    yield list(text)
    yield [piece for character in text for piece in ("", character)]
    for run in range(2, 8):
        yield [text[at : at + run] for at in range(0, size, run)]
    for cut in range(1, size):
        yield [text[:cut], text[cut:]]
    if size <= pairs_up_to:
        for first, second in itertools.combinations(range(1, size), 2):
            yield [text[:first], text[first:second], text[second:]]


def fold(events: Sequence[Event]) -> Answer:
    """The answer of a whole stream; asserts the order that `toolcall.events` promises."""
    answer = Answer()
    assert events, "an answer has at least its end"
    for event in events:
        assert answer.finish is None, "nothing follows Finished"
        assert answer.fault is None, "nothing follows a Fault"
        match event:
            case ReasoningDelta(text):
                assert text
                answer.reasoning += text
            case ContentDelta(text):
                assert text
                answer.content += text
            case CallStarted(index, name):
                assert answer.begun is None
                assert index == len(answer.calls)
                answer.begun = (name, "")
            case ArgumentsDelta(index, text):
                assert answer.begun is not None
                assert text
                assert index == len(answer.calls)
                answer.begun = (answer.begun[0], answer.begun[1] + text)
            case CallEnded(index):
                assert answer.begun is not None
                assert index == len(answer.calls)
                assert isinstance(json.loads(answer.begun[1]), dict)
                answer.calls.append(answer.begun)
                answer.begun = None
            case Finished(reason):
                answer.finish = reason
            case Fault():
                answer.fault = event
    assert answer.finish or answer.fault, "the last event is Finished or a Fault"
    assert not any("\ud800" <= c <= "\udfff" for c in str(answer)), "no mark leaves"
    return answer
