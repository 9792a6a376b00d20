"""Reading costs little, and the same for the last token of a long answer as for the first."""

import statistics
import time

import pytest

from tests.libs.toolcall.answers import MARKS, NO_MARKS, Case, plan, schema_of
from toolcall.formats.render import render_calls
from toolcall.formats.table import FORMATS

CHUNKS = 20_000
MOST_MEDIAN_US = 60
"""The aim is 15 us on a quiet machine; a busy one must not fail."""
LINE = 'def f(a, b):\n    return "x" + a[0]  # <b> & more\n'
EDIT = plan({"edit": schema_of({"code": {"type": "string"}}), "list": schema_of({"a": {}})})


def costs_us(case, chunks):
    """The processor time of each push."""
    parser = case.parser()
    costs = []
    for chunk in chunks:
        start = time.thread_time_ns()
        parser.push(chunk)
        costs.append((time.thread_time_ns() - start) / 1000)
    return costs


@pytest.mark.parametrize("name", ["glm47", "qwen3_coder", "deepseek_v32", "kimi_k2"])
@pytest.mark.parametrize("marks", [MARKS, NO_MARKS], ids=["tokens", "text"])
def test_a_token_of_a_long_string_costs_microseconds(name, marks, capsys):
    code = LINE * (4 * CHUNKS // len(LINE) + 1)
    case = Case(EDIT, FORMATS[name], marks, "after_reasoning", frozenset({"edit"}))
    text = marks.encode(render_calls(FORMATS[name], [("edit", {"code": code})]))
    chunks = [text[at : at + 4] for at in range(0, len(text), 4)][:CHUNKS]

    costs = costs_us(case, chunks)

    median = statistics.median(costs)
    with capsys.disabled():
        print(f"\n{name}: {median:.1f} us of CPU per chunk, the median of {CHUNKS}")  # noqa: T201
    assert median < MOST_MEDIAN_US
    early, late = (statistics.median(part) for part in (costs[:5000], costs[-5000:]))
    assert late < 3 * early


HARD = {
    "mentions in reasoning": ("glm47", "in_reasoning", "<tool_call>now and "),
    "mentions as text": ("hermes", "in_reasoning", '<tool_call>\n{"name": "edit'),
    "blanks": ("glm47", "after_reasoning", "\n \t "),
    "beginnings of tags": ("deepseek_v32", "after_reasoning", "<｜DS<<｜"),
    "an object that may be a call": ("llama3_json", "after_reasoning", '{"name": "a", "name": '),
}


@pytest.mark.parametrize(("name", "start", "part"), HARD.values(), ids=HARD)
@pytest.mark.parametrize("marks", [MARKS, NO_MARKS], ids=["tokens", "text"])
def test_four_times_the_text_costs_about_four_times_as_much(name, start, part, marks):
    """Reading anything again and again would cost sixteen times as much."""
    case = Case(EDIT, FORMATS[name], marks, start)
    costs = []
    for length in (10_000, 40_000):
        text = marks.encode(part * (length // len(part)))
        in_chunks = sum(costs_us(case, [text[at : at + 4] for at in range(0, len(text), 4)]))
        costs.append((in_chunks, sum(costs_us(case, [text]))))

    (short, short_at_once), (long, long_at_once) = costs
    assert long < 10 * short
    assert long_at_once < 10 * max(short_at_once, 200)
