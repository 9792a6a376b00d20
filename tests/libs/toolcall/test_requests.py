"""What a request asks for becomes a plan, or is refused by the path of its fault."""

from typing import Any

import pytest

from toolcall.errors import InvalidToolRequest
from toolcall.plan import OutputPlan, Structure, ToolChoice
from toolcall.requests import MOST_TOOLS, check_history, plan_output
from toolcall.schema.match import matches
from toolcall.schema.nodes import Anything, Array, Enum, Nothing, Object, String, Union

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CLOSED = {**CITY, "additionalProperties": False}


def tool(name: Any = "w", **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": CITY, **function}}


def named(name: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def allowed(mode: Any, *names: Any) -> dict[str, Any]:
    listed = {"mode": mode, "tools": [named(name) for name in names]}
    return {"type": "allowed_tools", "allowed_tools": listed}


def plan(**fields: Any) -> OutputPlan:
    names = ("tools", "tool_choice", "parallel_tool_calls", "response_format", "guided")
    return plan_output(**(dict.fromkeys(names) | fields))


def root_of(parameters: Any) -> Any:
    return plan(tools=[tool(parameters=parameters)]).tools[0].schema.root


# ---- Tools --------------------------------------------------------------------------------------


def test_nothing_asked_for_is_an_empty_plan():
    assert plan() == OutputPlan()


def test_a_tool_keeps_its_own_definition_and_schema():
    declared = tool(description="The weather", extra=1)

    (found,) = plan(tools=[declared]).tools

    assert found.name == "w"
    assert found.definition is declared
    assert found.schema.source is CITY
    assert found.schema.root == Object((("city", String()),), frozenset(["city"]), Nothing())


@pytest.mark.parametrize("declared", [{}, {"parameters": None}])
def test_a_tool_without_parameters_takes_no_arguments(declared):
    function = {"name": "now", **declared}

    (found,) = plan(tools=[{"type": "function", "function": function}]).tools

    assert found.schema.root == Object((), frozenset(), Nothing())


@pytest.mark.parametrize(
    ("parameters", "root"),
    [
        ({"type": "object"}, Object()),
        ({}, Object()),
        ({"additionalProperties": {"type": "string"}}, Object((), frozenset(), String())),
        ({"required": ["a"]}, Object((), frozenset("a"))),
        ({"properties": {"a": True}}, Object((("a", Anything()),), frozenset(), Nothing())),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "object"}}}, Object()),
        ({"allOf": [{"type": "object"}, {"required": ["a"]}]}, Object((), frozenset("a"))),
        ({"const": {"a": 1}}, Enum(('{"a": 1}',))),
        (
            {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            Union((Object((), frozenset("a")), Object((), frozenset("b")))),
        ),
    ],
)
def test_parameters_are_an_object_whether_they_say_so_or_not(parameters, root):
    assert root_of(parameters) == root


def test_closing_never_makes_a_tool_impossible():
    parameters = {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"x": True}, "minProperties": 2}},
        "required": ["a"],
    }

    (found,) = plan(tools=[tool(parameters=parameters)]).tools

    assert matches(found.schema, found.schema.root, {"a": {"x": 1, "y": 2}})


@pytest.mark.parametrize(("strict", "is_strict"), [(None, True), (True, True), (False, False)])
def test_a_tool_is_strict_unless_the_client_says_no(strict, is_strict):
    (found,) = plan(tools=[tool(strict=strict, parameters=CLOSED)]).tools

    assert found.is_strict is is_strict


BAD_TOOLS = [
    ("x", "tools"),
    ({}, "tools"),
    ([], "tools"),
    ([tool(f"t{at}") for at in range(MOST_TOOLS + 1)], "tools"),
    ([None], "tools[0]"),
    ([{"function": {"name": "w"}}], "tools[0].type"),
    ([{"type": "custom", "custom": {"name": "w"}}], "tools[0].type"),
    ([{"type": "function", "name": "w", "parameters": CITY}], "tools[0].function"),
    ([tool(), {"type": "function", "function": []}], "tools[1].function"),
    ([tool("")], "tools[0].function.name"),
    ([tool("a" * 65)], "tools[0].function.name"),
    ([tool("a.b")], "tools[0].function.name"),
    ([tool("a\n")], "tools[0].function.name"),
    ([tool("wé")], "tools[0].function.name"),
    ([tool(5)], "tools[0].function.name"),
    ([{"type": "function", "function": {}}], "tools[0].function.name"),
    ([tool("a"), tool("b"), tool("a")], "tools[2].function.name"),
    ([tool(description=5)], "tools[0].function.description"),
    ([tool(description="\ud83d")], "tools[0].function.description"),
    ([tool(strict="yes")], "tools[0].function.strict"),
    ([tool(strict=True)], "tools[0].function.parameters.additionalProperties"),
    ([tool(parameters="{}")], "tools[0].function.parameters"),
    ([tool(parameters=True)], "tools[0].function.parameters"),
    ([tool(parameters={"type": "string"})], "tools[0].function.parameters.type"),
    ([tool(parameters={"type": ["object", "null"]})], "tools[0].function.parameters.type"),
    ([tool(parameters={"anyOf": [CITY, {"type": "null"}]})], "tools[0].function.parameters"),
    ([tool(parameters={"enum": [{}, 1]})], "tools[0].function.parameters"),
    ([tool(parameters={"const": 1})], "tools[0].function.parameters"),
    (
        [tool(parameters={"properties": {"a": {"type": "strng"}}})],
        "tools[0].function.parameters.properties.a.type",
    ),
    (
        [tool(), tool("v", parameters={"properties": {"a": {"$ref": "#/$defs/A"}}})],
        "tools[1].function.parameters.properties.a.$ref",
    ),
    (
        [tool(f"t{at}", parameters={"enum": [{}] * 5_000}) for at in range(20)],
        "tools",
    ),
]


@pytest.mark.parametrize(("tools", "param"), BAD_TOOLS)
def test_bad_tools_are_refused_by_path(tools, param):
    with pytest.raises(InvalidToolRequest) as caught:
        plan(tools=tools)

    assert caught.value.param == param
    assert str(caught.value).startswith(f"{param}: expected ")


# ---- Choice -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "expected", "names"),
    [
        (None, ToolChoice("auto"), ["w", "v"]),
        ("auto", ToolChoice("auto"), ["w", "v"]),
        ("none", ToolChoice("none"), ["w", "v"]),
        ("required", ToolChoice("required"), ["w", "v"]),
        (named("v"), ToolChoice("named", "v"), ["w", "v"]),
        (allowed("auto", "v"), ToolChoice("auto"), ["v"]),
        (allowed("required", "v", "w"), ToolChoice("required"), ["w", "v"]),
    ],
)
def test_a_choice_says_what_may_be_called(choice, expected, names):
    made = plan(tools=[tool("w"), tool("v")], tool_choice=choice)

    assert made.choice == expected
    assert [each.name for each in made.tools] == names


@pytest.mark.parametrize("choice", [None, "auto", "none"])
def test_without_tools_nothing_is_called(choice):
    assert plan(tool_choice=choice).choice == ToolChoice("none")


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ("any", "tool_choice"),
        ("", "tool_choice"),
        (True, "tool_choice"),
        ({}, "tool_choice"),
        ({"type": "auto"}, "tool_choice"),
        ({"type": "function"}, "tool_choice.function"),
        ({"type": "function", "name": "w"}, "tool_choice.function"),
        (named("x"), "tool_choice.function.name"),
        (named(None), "tool_choice.function.name"),
        (named([]), "tool_choice.function.name"),
        ({"type": "allowed_tools"}, "tool_choice.allowed_tools"),
        (allowed("none", "w"), "tool_choice.allowed_tools.mode"),
        (allowed("auto"), "tool_choice.allowed_tools.tools"),
        (allowed("auto", "w", "x"), "tool_choice.allowed_tools.tools[1].function.name"),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": ["w"]}},
            "tool_choice.allowed_tools.tools[0]",
        ),
    ],
)
def test_a_bad_choice_is_refused_by_path(choice, param):
    with pytest.raises(InvalidToolRequest) as caught:
        plan(tools=[tool()], tool_choice=choice)

    assert caught.value.param == param


@pytest.mark.parametrize("choice", ["required", named("w"), allowed("auto", "w")])
def test_a_choice_needs_tools(choice):
    with pytest.raises(InvalidToolRequest) as caught:
        plan(tool_choice=choice)

    assert caught.value.param == "tool_choice"


@pytest.mark.parametrize(("value", "is_parallel"), [(None, True), (True, True), (False, False)])
def test_calls_are_parallel_unless_the_client_says_no(value, is_parallel):
    assert plan(tools=[tool()], parallel_tool_calls=value).is_parallel is is_parallel


@pytest.mark.parametrize(("tools", "value"), [([tool()], "false"), ([tool()], 0), (None, False)])
def test_parallel_tool_calls_is_a_boolean_that_comes_with_tools(tools, value):
    with pytest.raises(InvalidToolRequest) as caught:
        plan(tools=tools, parallel_tool_calls=value)

    assert caught.value.param == "parallel_tool_calls"


# ---- Structure ----------------------------------------------------------------------------------


def json_schema(**fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": fields}


def test_text_is_no_structure():
    assert plan(response_format={"type": "text"}).structure is None


def test_a_json_object_is_any_object():
    structure = plan(response_format={"type": "json_object"}).structure

    assert (structure.kind, structure.schema.root) == ("json", Object())


def test_a_json_schema_is_kept_open_as_it_is_written():
    structure = plan(response_format=json_schema(name="city", schema=CITY, strict=False)).structure

    assert structure.schema.root == Object((("city", String()),), frozenset(["city"]))


@pytest.mark.parametrize(
    ("guided", "expected"),
    [
        ({"guided_regex": "[a-z]+"}, Structure("regex", pattern="[a-z]+")),
        ({"guided_choice": ["yes", "no", "yes"]}, Structure("choice", choices=("yes", "no"))),
        ({"structured_outputs": {"regex": "a+"}}, Structure("regex", pattern="a+")),
        ({"structured_outputs": {"choice": ["a"]}}, Structure("choice", choices=("a",))),
        ({"guided_regex": None}, None),
        ({}, None),
    ],
)
def test_vllms_own_fields_are_served(guided, expected):
    assert plan(guided=guided).structure == expected


@pytest.mark.parametrize(
    "guided",
    [
        {"guided_json": {"type": "array"}},
        {"guided_json": '{"type": "array"}'},
        {"structured_outputs": {"json": {"type": "array"}, "regex": None}},
    ],
)
def test_vllms_json_may_come_as_text(guided):
    assert plan(guided=guided).structure.schema.root == Array()


def test_tools_and_structure_may_come_together():
    made = plan(tools=[tool()], response_format={"type": "json_object"})

    assert made.may_call
    assert made.structure is not None


@pytest.mark.parametrize(
    ("response_format", "param"),
    [
        ("json_object", "response_format"),
        ({}, "response_format.type"),
        ({"type": "json"}, "response_format.type"),
        ({"type": "json_schema"}, "response_format.json_schema"),
        (json_schema(schema=CITY), "response_format.json_schema.name"),
        (json_schema(name="a b", schema=CITY), "response_format.json_schema.name"),
        (json_schema(name="a"), "response_format.json_schema.schema"),
        (json_schema(name="a", schema="{}"), "response_format.json_schema.schema"),
        (json_schema(name="a", schema=CITY, strict=1), "response_format.json_schema.strict"),
        (
            json_schema(name="a", schema=CITY, strict=True),
            "response_format.json_schema.schema.additionalProperties",
        ),
        (
            json_schema(name="a", schema={"type": "objekt"}),
            "response_format.json_schema.schema.type",
        ),
    ],
)
def test_a_bad_response_format_is_refused_by_path(response_format, param):
    with pytest.raises(InvalidToolRequest) as caught:
        plan(response_format=response_format)

    assert caught.value.param == param


@pytest.mark.parametrize(
    ("guided", "param"),
    [
        ({"guided_regex": "("}, "guided_regex"),
        ({"guided_regex": ""}, "guided_regex"),
        ({"guided_regex": "a" * 10_001}, "guided_regex"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": "ab"}, "guided_choice"),
        ({"guided_choice": ["a", ""]}, "guided_choice[1]"),
        ({"guided_choice": ["a", 5]}, "guided_choice[1]"),
        ({"guided_choice": ["\ud800"]}, "guided_choice[0]"),
        ({"guided_choice": [str(at) for at in range(1_001)]}, "guided_choice"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_json": 5}, "guided_json"),
        ({"guided_json": {"type": "foo"}}, "guided_json.type"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
        ({"guided_grammar": "root ::= x"}, "guided_grammar"),
        ({"structured_outputs": "a"}, "structured_outputs"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"grammar": "x"}}, "structured_outputs.grammar"),
        ({"structured_outputs": {"json_object": 1}}, "structured_outputs.json_object"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs.choice"),
    ],
)
def test_bad_guidance_is_refused_by_path(guided, param):
    with pytest.raises(InvalidToolRequest) as caught:
        plan(guided=guided)

    assert caught.value.param == param


def test_two_structures_are_one_too_many():
    with pytest.raises(InvalidToolRequest) as caught:
        plan(guided={"guided_regex": "a"}, response_format={"type": "json_object"})

    assert caught.value.param == "guided_regex"


# ---- History ------------------------------------------------------------------------------------

USER = {"role": "user", "content": "hi"}


def call(call_id: Any = "c1", arguments: Any = "{}", **others: Any) -> dict[str, Any]:
    function = {"name": "w", "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function, **others}


def calling(*calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(call_id: Any = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "sunny"}


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [USER],
        [USER, {"role": "assistant", "content": "hello"}, USER],
        [USER, calling(call()), result()],
        [USER, calling(call("a"), call("b", '{"city": "Paris"}')), result("b"), result("a"), USER],
        [USER, calling(call()), result(), calling(call()), result()],
        [USER, calling(call()), {"role": "system", "content": "x"}, result(), USER],
        [USER, calling(), USER],
    ],
)
def test_a_whole_history_passes(messages):
    check_history(messages)


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ("hi", "messages"),
        (["hi"], "messages[0]"),
        ([USER, result()], "messages[1].tool_call_id"),
        ([USER, calling(call()), result("c2")], "messages[2].tool_call_id"),
        ([USER, calling(call()), result(None)], "messages[2].tool_call_id"),
        ([USER, calling(call()), result(), result()], "messages[3].tool_call_id"),
        ([USER, calling(call()), result(), USER, result()], "messages[4].tool_call_id"),
        ([USER, calling(call())], "messages[1].tool_calls[0]"),
        ([USER, calling(call()), USER, result()], "messages[1].tool_calls[0]"),
        ([calling(call("a"), call("b")), result("a"), USER], "messages[0].tool_calls[1]"),
        ([calling(call()), calling(call())], "messages[0].tool_calls[0]"),
        ([calling(call(), call())], "messages[0].tool_calls[1].id"),
        ([calling(call(None))], "messages[0].tool_calls[0].id"),
        ([calling(call(""))], "messages[0].tool_calls[0].id"),
        ([calling("c1")], "messages[0].tool_calls[0]"),
        ([{"role": "assistant", "tool_calls": {}}], "messages[0].tool_calls"),
        ([calling(call(type="custom"))], "messages[0].tool_calls[0].type"),
        ([calling(call(function=None))], "messages[0].tool_calls[0].function"),
        ([calling(call(function={"arguments": "{}"}))], "messages[0].tool_calls[0].function.name"),
        ([calling(call(arguments={}))], "messages[0].tool_calls[0].function.arguments"),
        ([calling(call(arguments=""))], "messages[0].tool_calls[0].function.arguments"),
        ([calling(call(arguments="[]"))], "messages[0].tool_calls[0].function.arguments"),
        ([calling(call(arguments='{"a": 1'))], "messages[0].tool_calls[0].function.arguments"),
        ([calling(call(arguments='{"a": NaN}'))], "messages[0].tool_calls[0].function.arguments"),
        (
            [calling(call(arguments='{"a": "\\ud800"}'))],
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            [{"role": "assistant", "function_call": {"name": "w", "arguments": "{}"}}],
            "messages[0].function_call",
        ),
        ([{**USER, "tool_calls": [1]}], "messages[0].tool_calls"),
        ([{**USER, "tool_calls": [{}]}], "messages[0].tool_calls"),
        ([{"role": "system", "content": "", "tool_calls": [call()]}], "messages[0].tool_calls"),
        ([{**USER, "function_call": {"name": "w"}}], "messages[0].function_call"),
        ([calling(call()), {**result(), "tool_calls": [call("c2")]}], "messages[1].tool_calls"),
    ],
)
def test_a_history_that_does_not_fit_is_refused_by_path(messages, param):
    with pytest.raises(InvalidToolRequest) as caught:
        check_history(messages)

    assert caught.value.param == param


def test_tools_that_together_take_too_long_are_refused(monkeypatch):
    monkeypatch.setattr("toolcall.requests.ALL_STEPS", 100_000)
    used = {"$ref": "#/$defs/O", "maxProperties": 9}
    parameters = {
        "type": "object",
        "properties": {"a": used, "b": dict(used)},
        "$defs": {"O": {"properties": {f"a{at}": True for at in range(1_000)}}},
    }

    plan(tools=[tool("t0", parameters=parameters)])
    with pytest.raises(InvalidToolRequest) as caught:
        plan(tools=[tool(f"t{at}", parameters=parameters) for at in range(10)])

    assert caught.value.param.endswith(".function.parameters")
    assert "100,000 steps" in str(caught.value)


def test_a_tool_that_lists_no_arguments_takes_none():
    parameters = {"type": "object", "properties": {}, "required": [], "description": "nothing"}
    function = {"name": "now", "parameters": parameters}

    plan = plan_output(
        tools=[{"type": "function", "function": function}],
        tool_choice=None,
        parallel_tool_calls=None,
        response_format=None,
    )

    (tool,) = plan.tools
    assert matches(tool.schema, tool.schema.root, {})
    assert not matches(tool.schema, tool.schema.root, {"a": 1})
