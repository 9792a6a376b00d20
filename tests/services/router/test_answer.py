"""One answer from tokens to events, without a cluster: scripts stand in for the engines."""

import json
from types import SimpleNamespace

import pytest

from launcher import model
from router.answer import Answer
from router.constrain import Constraint
from router.domain import Generation
from router.errors import InvalidModelOutput
from router.generate import Run
from router.render import Renderer
from router.sessions import Sessions
from router.settings import RouterSettings
from router.workers import Workers
from tests.libs.toolcall.answers import plan, schema_of
from toolcall.events import ArgumentsDelta, CallEnded, CallStarted, ContentDelta, ReasoningDelta
from toolcall.formats.table import FORMATS
from wire.deadlines import Deadline

CITY = schema_of({"city": {"type": "string"}}, required=["city"])
GOOD = '<tool_call>\n{"name": "w", "arguments": {"city": "Paris"}}\n</tool_call>'
UNDECLARED = GOOD.replace('"w"', '"nope"')


class Engines:
    """Dynamo's runtime, endpoint and client of two decode workers; `outputs` come one a request."""

    def __init__(self, outputs):
        self.outputs = list(outputs)
        self.workers, self.prompts = [], []

    def endpoint(self, path):
        ids = [1, 2] if "backend" in path else []

        async def client():
            return SimpleNamespace(instance_ids=lambda: ids, direct=self.direct)

        return SimpleNamespace(client=client)

    async def direct(self, request, worker_id, **_):
        self.workers.append(worker_id)
        self.prompts.append(tuple(request["token_ids"]))
        return self._chunks(self.outputs.pop(0))

    async def _chunks(self, token_ids):
        for token_id in token_ids:
            yield {"token_ids": [token_id]}
        yield {"token_ids": [], "finish_reason": "stop"}


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
            max_tokens=1000,
            sampling={},
            stop_token_ids=(2,),
            stop_texts=tuple(stop),
            deadline=Deadline.after(60),
        )
        run = Run(generation, workers, Sessions(60, lambda: 0.0), settings)
        message, fault = Message(), None
        try:
            async for event in Answer(run, constraint, renderer, is_whole=is_whole).events():
                message.add(event)
        except InvalidModelOutput as error:
            fault = error
        return SimpleNamespace(message=message, fault=fault, run=run, engines=engines)

    return generate


def encode(renderer, text):
    return renderer.tokenizer.encode(text, add_special_tokens=False).ids


class Message:
    """What a client makes of the events; it asserts that no call comes twice."""

    def __init__(self):
        self.reasoning, self.content, self.calls, self.finish = "", "", [], None

    def add(self, event):
        match event:
            case ReasoningDelta(text):
                self.reasoning += text
            case ContentDelta(text):
                self.content += text
            case CallStarted(index, name):
                assert index == len(self.calls)
                self.calls.append([name, ""])
            case ArgumentsDelta(_, text):
                self.calls[-1][1] += text
            case CallEnded():
                json.loads(self.calls[-1][1])
            case _:
                self.finish = event.reason


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
    assert streamed.message.content + GOOD * len(streamed.message.calls) == before
    assert whole.engines.prompts[1] == whole.engines.prompts[0]
    assert whole.message.content + GOOD * (len(whole.message.calls) - 1) == before
    assert whole.message.calls[-1] == ["w", '{"city": "Rome"}']


async def test_half_a_character_before_a_control_token_comes_out_once(generate, renderers):
    constraint = Constraint(plan({"w": schema_of()}), FORMATS["glm47"], "after_reasoning")
    renderer = renderers("smollm2-glm", "glm47")
    half = encode(renderer, "𓀀")[:1]

    answer = await generate(constraint, [*half, *encode(renderer, "<tool_call>w</tool_call>")])

    assert answer.message.content == "\ufffd"
    assert answer.message.calls == [["w", "{}"]]


async def test_a_retry_goes_to_the_worker_that_has_its_kv(generate):
    """The first attempt is over before the retry chooses: it is no load on its worker any more."""
    constraint = Constraint(plan({"w": schema_of()}), FORMATS["glm47"], "after_reasoning")

    answer = await generate(constraint, "<tool_call>nope</tool_call>", "<tool_call>w</tool_call>")

    assert answer.message.calls == [["w", "{}"]]
    assert answer.engines.workers == [1, 1]
