"""One answer from tokens to events, without a cluster: scripts stand in for the engines."""

import json
import re
import time
from types import SimpleNamespace

import pytest

from launcher import model
from router.answer import Answer
from router.constrain import Constraint
from router.domain import Generation
from router.edge.wire_responses import CallIds, Envelope
from router.errors import InvalidModelOutput
from router.generate import Run
from router.render import Renderer
from router.sessions import Sessions
from router.settings import RouterSettings
from router.workers import Workers
from tests.libs.toolcall.answers import plan, schema_of
from tests.services.router.scripted_engines import Engines
from toolcall.formats.table import FORMATS
from wire.deadlines import Deadline

CITY = schema_of({"city": {"type": "string"}}, required=["city"])
GOOD = '<tool_call>\n{"name": "w", "arguments": {"city": "Paris"}}\n</tool_call>'
UNDECLARED = GOOD.replace('"w"', '"nope"')


@pytest.fixture(scope="module")
def renderers():
    """By the model's name and its tool format."""
    kept = {}

    def get(name, tool_format):
        key = (name, tool_format)
        if key not in kept:
            kept[key] = Renderer(model.ensure(name), 8192, tool_format)
        return kept[key]

    return get


@pytest.fixture
def generate(renderers):
    """Answers a request with these outputs, given as text or as token ids, one for each try."""

    async def generate(constraint, *outputs, on="smollm2-glm", is_whole=False, stop=()):
        renderer = renderers(on, constraint.format.name if constraint.format else "none")

        engines = Engines(
            encode(renderer, output) if isinstance(output, str) else output for output in outputs
        )
        workers = Workers(block_tokens=32)
        await workers.open(engines, "test")
        settings = RouterSettings(model_dir=model.ensure(on), model_name="scripted")
        generation = Generation(
            request_id="r",
            prompt=(1, 2, 3),
            max_tokens=100_000,
            sampling={},
            stop_token_ids=(2,),
            stop_texts=tuple(stop),
            deadline=Deadline.after(60),
        )
        run = Run(generation, workers, Sessions(60, lambda: 0.0), settings)
        events, fault = [], None
        try:
            async for event in Answer(run, constraint, renderer, is_whole=is_whole).events():
                events.append(event)
        except InvalidModelOutput as error:
            fault = error
        body = Envelope("chat.completions", "r", "m", CallIds("r")).body(events, run.usage)
        message = json.loads(body)["choices"][0]["message"]
        calls = [
            (call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls", ())
        ]
        return SimpleNamespace(
            reasoning=message.get("reasoning_content", ""),
            content=message["content"] or "",
            calls=calls,
            finish=events[-1].reason if events and fault is None else None,
            fault=fault,
            tokens=run.usage.completion_tokens,
            engines=engines,
        )

    return generate


def encode(renderer, text):
    return renderer.tokenizer.encode(text, add_special_tokens=False).ids


def hermes():
    """A constraint whose format's tags are text, which tokens join to what stands before them."""
    return Constraint(plan({"w": CITY}), FORMATS["hermes"], "after_reasoning")


@pytest.mark.parametrize("before", ["Let me look.", GOOD], ids=["content", "a call"])
async def test_a_token_across_the_point_of_the_retry_delivers_nothing_twice(generate, before):
    """`.<` and `><` are one token each: no retry of a stream begins between their characters."""
    faulty, again = before + UNDECLARED, before + GOOD.replace("Paris", "Rome")

    streamed = await generate(hermes(), faulty, again, on="smollm2")
    whole = await generate(hermes(), faulty, again, on="smollm2", is_whole=True)

    assert streamed.fault is not None
    assert streamed.content + GOOD * len(streamed.calls) == before
    assert whole.engines.prompts[1] == whole.engines.prompts[0]
    assert whole.content + GOOD * (len(whole.calls) - 1) == before
    assert whole.calls[-1] == ("w", '{"city": "Rome"}')


async def test_half_a_character_before_a_control_token_comes_out_once(generate, renderers):
    constraint = Constraint(plan({"w": schema_of()}), FORMATS["glm47"], "after_reasoning")
    renderer = renderers("smollm2-glm", "glm47")
    half = encode(renderer, "𓀀")[:1]

    answer = await generate(constraint, [*half, *encode(renderer, "<tool_call>w</tool_call>")])

    assert answer.content == "\ufffd"
    assert answer.calls == [("w", "{}")]


async def test_a_retry_goes_to_the_worker_that_has_its_kv(generate):
    """The first attempt is over before the retry chooses: it is no load on its worker any more."""
    constraint = Constraint(plan({"w": schema_of()}), FORMATS["glm47"], "after_reasoning")

    answer = await generate(constraint, "<tool_call>nope</tool_call>", "<tool_call>w</tool_call>")

    assert answer.calls == [("w", "{}")]
    assert answer.engines.workers == [1, 1]


async def test_four_times_the_tokens_cost_about_four_times_as_much(generate, renderers):
    """Adding each token to all text before it would cost sixteen times as much."""
    renderer = renderers("smollm2-glm", "none")

    async def cost_s(tokens):
        output = encode(renderer, "🙂") + encode(renderer, " international") * tokens
        began = time.thread_time()
        await generate(Constraint(), output, is_whole=True)
        return time.thread_time() - began

    # The better of two tries each: a neighbour of this core may double any of them.
    few, many = [min([await cost_s(tokens), await cost_s(tokens)]) for tokens in (7_000, 28_000)]

    assert many < 8 * few


NOW = "<tool_call>now</tool_call>"
OBJECT = {"response_format": {"type": "json_object"}}
REQUIRED = {"schemas": {"now": schema_of()}, "tool_choice": "required"}
STOPPED = {
    "prose": ({}, "one STOP two", ("one ", [], "stop")),
    "prose after a call": (
        {"schemas": {"now": schema_of()}},
        f"{NOW}one STOP{NOW}",
        ("one ", [("now", "{}")], "tool_calls"),
    ),
    "behind a structure": (OBJECT, '{"a": 1} STOP', ('{"a": 1} ', [], "stop")),
    "inside a structure": (OBJECT, '{"a": "STOP"}', "invalid_response"),
    "in place of a call": (REQUIRED, f"STOP{NOW}", "invalid_tool_call"),
}


@pytest.mark.parametrize(("request_", "output", "expected"), STOPPED.values(), ids=STOPPED)
@pytest.mark.parametrize("is_whole", [True, False], ids=["whole", "stream"])
async def test_what_a_stop_string_ends_is_checked_as_what_the_model_ends(
    generate, request_, output, expected, is_whole
):
    constraint = Constraint(plan(**request_), FORMATS["glm47"], "after_reasoning")

    answer = await generate(constraint, output, output, is_whole=is_whole, stop=["STOP"])

    if isinstance(expected, str):
        assert answer.fault.code == expected
        assert "a stop string ended the answer" in str(answer.fault)
    else:
        assert answer.fault is None
        assert (answer.content, answer.calls, answer.finish) == expected


async def test_a_retry_after_a_stop_string_looks_for_it_again(generate):
    constraint = Constraint(plan(**REQUIRED), FORMATS["glm47"], "in_reasoning")

    answer = await generate(constraint, "why</think>STOP", f"{NOW}one STOP", stop=["STOP"])

    assert (answer.reasoning, answer.content, answer.calls) == ("why", "one ", [("now", "{}")])


BLANK_STOPS = {
    "without a format": (Constraint(), "Paris" + "\n" * 500, "\n", "Paris", 2),
    "in a chat": (Constraint(plan(), FORMATS["glm47"]), "Paris" + "\n" * 500, "\n", "Paris", 2),
    "behind text": (Constraint(), "a.\n\n\n\n", ".\n\n", "a", 4),
    "behind what the template writes": (
        Constraint(plan(), FORMATS["hermes"], "in_reasoning"),
        "t</think>\n\nParis\n\nRome",
        "\n\n",
        "Paris",
        7,
    ),
}


@pytest.mark.parametrize(
    ("constraint", "text", "stop", "content", "tokens"), BLANK_STOPS.values(), ids=BLANK_STOPS
)
async def test_a_stop_string_of_blanks_ends_the_answer_at_once(
    generate, renderers, constraint, text, stop, content, tokens
):
    renderer = renderers("smollm2-glm", constraint.format.name if constraint.format else "none")
    ids = [id_ for part in re.findall(r"<.*?>|\w+|.|\n", text) for id_ in encode(renderer, part)]

    answer = await generate(constraint, ids, stop=[stop])

    assert (answer.content, answer.finish, answer.tokens) == (content, "stop", tokens)


async def test_blanks_before_a_call_are_no_stop_string(generate):
    constraint = Constraint(plan({"now": schema_of()}), FORMATS["glm47"], "after_reasoning")

    answer = await generate(constraint, f"Sure.\n{NOW}", stop=["\n"])

    assert (answer.content, answer.calls) == ("Sure.", [("now", "{}")])
