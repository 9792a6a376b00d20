"""From a request to its constraint: what no grammar can serve is refused, with its path."""

import pytest

from router.constrain import Constrainer, Wishes
from router.errors import InvalidRequest
from router.render import Renderer
from toolcall.compiling.checker import GrammarChecker


def tool(name, argument):
    parameters = {"type": "object", "properties": {argument: {}}, "required": [argument]}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


@pytest.mark.parametrize("choice", ["auto", "required"])
async def test_a_tool_that_the_models_format_cannot_call_is_refused(model_dir, choice):
    renderer = Renderer(model_dir, 8192, "qwen3_coder")
    constrainer = Constrainer(renderer, GrammarChecker(model_dir))
    wishes = Wishes(tools=[tool("sum", "a"), tool("compare", "a>b")], tool_choice=choice)
    plan = await constrainer.plan(wishes)

    with pytest.raises(InvalidRequest, match='Rename the argument "a>b"') as refused:
        await constrainer.constrain(wishes, plan, "")

    assert refused.value.param == "tools[1].function.parameters"
