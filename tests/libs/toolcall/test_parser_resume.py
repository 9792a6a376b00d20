"""Where another try takes over after a fault: behind all that has been delivered."""

import pytest

from tests.libs.toolcall.answers import NO_MARKS, Case, call, plan, schema_of
from tests.libs.toolcall.splits import splits
from toolcall.events import ContentDelta
from toolcall.formats.table import FORMATS, GLM_45, GLM_47

W = schema_of({"city": {"type": "string"}}, required=["city"])
NOW = schema_of()

RESUMING = {
    "an undeclared call": ("t</think>Hi\n" + call("nope"), "t</think>Hi\n"),
    "an invalid call": ("t</think>Hi\n" + call("w"), "t</think>Hi\n"),
    "a second call": (f"t</think>{call('now')}{call('w')}", f"t</think>{call('now')}"),
    "a call in open reasoning": ("think" + call("w"), "think"),
    "a stray tag": ("t</think>Hi</tool_call>", "t</think>Hi"),
}


@pytest.mark.parametrize("form", [GLM_47, GLM_45], ids=["glm47", "glm45"])
@pytest.mark.parametrize(("written", "kept"), RESUMING.values(), ids=RESUMING)
def test_another_try_takes_over_where_the_faulty_call_began(written, kept, form):
    case = Case(plan({"w": W, "now": NOW}), form)
    text = case.wire(written)

    for pieces in splits(text):
        first, second = case.parser(), case.parser()
        events = [event for piece in pieces for event in first.push(piece)]
        assert not isinstance(events[-1], ContentDelta)
        at = first.resume_at()

        assert at == len(case.wire(kept))
        assert joined(second.push(text[:at])) == joined(events[:-1])


def joined(events):
    """The events with deltas of a kind put together."""
    parts = []
    for event in events:
        if parts and type(parts[-1]) is type(event) and hasattr(event, "text"):
            parts[-1] = type(event)(parts[-1].text + event.text)
        else:
            parts.append(event)
    return parts


def test_a_call_that_has_left_in_part_cannot_be_tried_again():
    case = Case(plan({"w": W}), live_tools=frozenset({"w"}))
    parser = case.parser()

    parser.push(case.wire("t</think><tool_call>w</tool_call>"))

    assert parser.resume_at() is None
    assert parser.safe_length == len("t") + 1


def test_another_try_stays_in_a_section_behind_its_last_whole_call():
    case = Case(plan({"now": NOW}), FORMATS["kimi_k2"], start="after_reasoning")
    whole = (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0"
        "<|tool_call_argument_begin|>{}<|tool_call_end|>"
    )
    parser = case.parser()

    parser.push(case.wire(whole + "\n and"))

    assert parser.resume_at() == len(case.wire(whole))


@pytest.mark.parametrize("written", ["abc\n", "abc<tool_call>no", "abc⟨/thi", "abc"])
def test_reasoning_that_was_never_closed_is_not_delivered_again(written):
    """A new parser would hold back what has left: it may be the beginning of something else."""
    case = Case(plan({"w": W}, tool_choice="required"), GLM_47, NO_MARKS)
    parser = case.parser()

    parser.push(case.wire(written))
    parser.finish("stop")

    assert parser.resume_at() is None


@pytest.mark.parametrize(
    ("written", "resume_at"), [("t</think>", 2), ("t</think>Hello", None)], ids=["empty", "prose"]
)
def test_a_missing_call_can_be_tried_again_when_no_content_has_left(written, resume_at):
    case = Case(plan({"w": W}, tool_choice="required"))
    parser = case.parser()

    parser.push(case.wire(written))
    parser.finish("stop")

    assert parser.resume_at() == resume_at
    assert parser.safe_length == 2
