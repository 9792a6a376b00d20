"""Request bodies: what is refused, with the path of the fault."""

import pytest
from pydantic import ValidationError

from router.edge.error_replies import from_validation
from router.edge.wire_requests import ChatRequest, CompletionRequest
from router.errors import InvalidRequest

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 2}, "n"),
        ({"stream": "yes"}, "stream"),
        ({"stop": [1]}, "stop"),
        ({"seed": 1.5}, "seed"),
    ],
)
def test_a_wrong_field_is_named(changes, param):
    with pytest.raises(ValidationError) as caught:
        ChatRequest.model_validate({**CHAT, **changes})

    fault = from_validation(caught.value)
    assert (fault.param or "").startswith(param)
    assert param.split("[")[0] in str(fault)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("functions", [{"name": "f"}]),
        ("function_call", "auto"),
        ("logprobs", True),
        ("logit_bias", {"5": 1}),
    ],
)
def test_what_would_change_the_answer_and_is_not_served_is_refused(field, value):
    with pytest.raises(InvalidRequest) as caught:
        ChatRequest.model_validate({**CHAT, field: value}).refuse_unsupported()

    assert caught.value.param == field
    assert caught.value.code == "unsupported_parameter"


@pytest.mark.parametrize("field", ["tools", "tool_choice", "response_format"])
def test_completions_refuse_what_only_chat_has(field):
    body = {"model": "m", "prompt": "hi", field: {"type": "json_object"}}

    with pytest.raises(InvalidRequest, match="/v1/chat/completions") as caught:
        CompletionRequest.model_validate(body).refuse_unsupported()

    assert caught.value.param == field


def test_every_constraint_reaches_the_check_of_constraints():
    fields = {"guided_json": {}, "guided_grammar": "root ::= x", "structured_outputs": {}}
    ignored = {"guided_decoding_backend": "xgrammar", "guided_regex": None}

    wishes = ChatRequest.model_validate({**CHAT, **fields, **ignored}).wishes()

    assert wishes.guided == fields


def test_wishes_of_any_depth_are_refused_and_not_an_error():
    deep: list[object] = []
    for _ in range(900):
        deep = [deep]

    with pytest.raises(InvalidRequest, match="64 levels"):
        ChatRequest.model_validate({**CHAT, "tools": deep}).wishes().digest()


def test_neutral_values_and_unrelated_fields_pass():
    body = {
        **CHAT,
        "logprobs": False,
        "user": "u",
        "metadata": {"a": "b"},
        "store": True,
    }

    ChatRequest.model_validate(body).refuse_unsupported()


def test_text_parts_are_joined_and_developer_is_system():
    body = ChatRequest.model_validate(
        {
            "model": "m",
            "messages": [
                {
                    "role": "developer",
                    "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                }
            ],
        }
    )

    assert body.messages[0].for_template() == {"role": "system", "content": "ab"}


def test_the_arguments_of_earlier_calls_are_decoded_for_the_template():
    function = {"name": "f", "arguments": '{"a": [1, "5"]}'}
    call = {"id": "c", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "why"}
    body = ChatRequest.model_validate({"model": "m", "messages": [*CHAT["messages"], message]})

    rendered = body.messages[1].for_template()

    assert rendered["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": [1, "5"]}}
    assert rendered["reasoning_content"] == "why"
    assert body.calls_so_far() == 1


def test_an_image_part_is_refused_by_its_path():
    part = {"type": "image_url", "image_url": {"url": "x"}}
    with pytest.raises(ValidationError) as caught:
        ChatRequest.model_validate(
            {"model": "m", "messages": [{"role": "user", "content": [part]}]}
        )

    assert (from_validation(caught.value).param or "").startswith("messages[0].content")


def test_completions_default_to_sixteen_tokens():
    assert CompletionRequest(model="m", prompt="a").answer_tokens() == 16
    assert CompletionRequest(model="m", prompt=[1, 2]).prompt == [1, 2]
    with pytest.raises(ValidationError):
        CompletionRequest(model="m", prompt=["a", "b"])


def test_stop_takes_up_to_four_non_empty_strings():
    assert ChatRequest.model_validate({**CHAT, "stop": "x"}).stop_texts() == ("x",)
    for wrong in (["a", "b", "c", "d", "e"], [""]):
        with pytest.raises(InvalidRequest):
            ChatRequest.model_validate({**CHAT, "stop": wrong}).stop_texts()
