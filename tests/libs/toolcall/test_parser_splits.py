"""However an answer is cut, it says the same: every format, and random tags in any order."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.libs.toolcall.answers import MARKS, NO_MARKS, Case, plan, schema_of
from tests.libs.toolcall.splits import splits
from toolcall.errors import Fault
from toolcall.formats.render import render_calls
from toolcall.formats.table import FORMATS, TaggedArguments

TOOLS = {
    "now": schema_of(),
    "w": schema_of(
        {
            "city": {"type": "string"},
            "n": {"type": "integer"},
            "u": {"type": ["string", "integer"]},
            "a": {"type": "array"},
        }
    ),
}
LIVE = frozenset(TOOLS)
CALLS = [
    ("w", {"city": 'a<b>\n"é🙂\\', "n": -1, "u": "5 ", "a": [{"b": "]"}, None]}),
    ("now", {}),
]
PLANS = [
    plan(TOOLS),
    plan(TOOLS, tool_choice="none"),
    plan(TOOLS, tool_choice="required"),
    plan(TOOLS, tool_choice={"type": "function", "function": {"name": "w"}}),
    plan(TOOLS, parallel_tool_calls=False),
    plan(TOOLS, response_format={"type": "json_object"}),
    plan(),
]
WORDS = ["now", "w", "city", "n", "u", "5", "x", "é", " ", "\n", '"', "\\", "{", "}", "<", "</"]
WORDS += ["functions.w:0", '"name": "w", ', '"arguments": {', '"parameters": {', '{"city": "P"}']


@pytest.mark.engine
@pytest.mark.parametrize("live_tools", [frozenset(), LIVE], ids=["held", "live"])
@pytest.mark.parametrize("marks", [MARKS, NO_MARKS], ids=["tokens", "text"])
@pytest.mark.parametrize("tags", FORMATS.values(), ids=FORMATS)
def test_every_format_is_read_alike_in_every_split(tags, marks, live_tools):
    case = Case(plan(TOOLS), tags, marks, "fresh", live_tools)
    before = "" if tags.starts_the_answer else "Hi.\n"
    thoughts = "" if tags.reasoning is None else "{}I <b>think</b>.{}".format(*tags.reasoning)
    text = case.wire(f"{thoughts}{before}{render_calls(tags, CALLS)}")
    whole = case.read([text])

    assert whole.fault is None
    assert whole.finish == "tool_calls"
    assert whole.content == before.strip()
    assert [name for name, _ in whole.calls] == ["w", "now"]
    for pieces in splits(text, pairs_up_to=0):
        assert case.read(pieces) == whole, f"in the pieces {pieces}"


@pytest.mark.parametrize("tags", FORMATS.values(), ids=FORMATS)
def test_random_tags_come_to_the_same_in_every_split(tags):
    @settings(
        max_examples=25,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def read_alike(data):
        case = Case(
            data.draw(st.sampled_from(PLANS)),
            tags,
            data.draw(st.sampled_from([MARKS, NO_MARKS])),
            data.draw(st.sampled_from(["fresh", "in_reasoning", "after_reasoning"])),
            data.draw(st.sampled_from([frozenset(), LIVE])),
        )
        pieces = data.draw(st.lists(st.sampled_from(fragments(tags)), min_size=1, max_size=8))
        text = case.wire("".join(pieces))
        ends = data.draw(st.sampled_from(["stop", "length"]))

        whole = read(case, [text], ends)
        for split in (list(text), *(drawn_split(data, text) for _ in range(3))):
            assert read(case, split, ends) == whole, f"in the pieces {split}"
        assert_another_try_may_take_over(case, text, whole)

    read_alike()


def fragments(tags):
    """What answers in this format are made of, whole and cut short."""
    texts = [tags.call_open, tags.name_close, tags.call_close, tags.separator]
    texts += [tags.section_open, tags.section_close, *(tags.reasoning or ())]
    texts += [tag for variant in tags.section_variants for tag in variant]
    if isinstance(tags.arguments, TaggedArguments):
        form = tags.arguments
        texts += [form.key_open, form.key_close, form.value_close, *(form.type_tags or ())]
        texts += [f"{form.key_open}city{form.key_close}", f"P{form.value_close}"]
    texts += [f"{tags.section_open}{tags.call_open}w{tags.name_close}"]
    texts += [render_calls(tags, [call]) for call in CALLS]
    texts += [text[: len(text) // 2] for text in texts]
    return sorted({text for text in [*texts, *WORDS] if text})


def drawn_split(data, text):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def read(case, pieces, ends):
    """The answer, and after a fault where another try would begin."""
    parser = case.parser()
    events = [event for piece in pieces for event in parser.push(piece)]
    events += parser.finish(ends)
    is_faulty = isinstance(events[-1], Fault)
    return joined(events), (parser.resume_at(), parser.safe_length) if is_faulty else None


def assert_another_try_may_take_over(case, text, whole):
    """A new parser, given the text that is kept, delivers what was delivered and no more."""
    events, resumption = whole
    if resumption is None or resumption[0] is None or events[-1].call is None:
        return
    again = case.parser().push(text[: resumption[0]])
    assert joined(again) == events[:-1]


def joined(events):
    """The events with deltas of a kind put together."""
    parts = []
    for event in events:
        if parts and type(parts[-1]) is type(event) and hasattr(event, "text"):
            event = type(event)(**{**vars(event), "text": parts.pop().text + event.text})
        parts.append(event)
    return parts
