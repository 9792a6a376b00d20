"""Tool calls through a real router: the grammar that workers get, the retry, and a worker's loss.

What a model's output becomes is told by tests/toolcall; here stands what only the router does.
"""

import json

import httpx
import pytest
from openai import AsyncOpenAI
from tokenizers import Tokenizer

GOOD = "<tool_call>w\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>"
UNDECLARED = GOOD.replace(">w\n", ">weather\n")
TOOL = {
    "type": "function",
    "function": {
        "name": "w",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
REPEATED = {
    "type": "function",
    "function": {
        "name": "w",
        "parameters": {
            "type": "object",
            "properties": {"cities": {"type": "array", "uniqueItems": True}},
        },
    },
}
EOS = "<|observation|>"


@pytest.fixture(scope="module")
def encode(glm_dir):
    tokenizer = Tokenizer.from_file(str(glm_dir / "tokenizer.json"))

    def encode(text):
        return tokenizer.encode(text, add_special_tokens=False).ids

    return encode


def body(**changes):
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    return {"model": "scripted", "messages": messages, "tools": [TOOL], **changes}


async def ask(cluster, **changes):
    async with httpx.AsyncClient(timeout=60) as client:
        return await client.post(f"{cluster.url}/v1/chat/completions", json=body(**changes))


async def ask_stream(cluster, **changes):
    """The message that the official SDK folds out of the stream."""
    client = AsyncOpenAI(base_url=f"{cluster.url}/v1", api_key="-", max_retries=0, timeout=60)
    async with client, client.chat.completions.stream(**body(**changes)) as stream:
        return (await stream.get_final_completion()).choices[0]


def decode_requests(cluster):
    return [call["request"] for call in cluster.requests("decode")]


async def test_workers_get_the_grammar_and_the_client_the_call(glm_cluster, encode):
    glm_cluster.script(outputs=[encode("Sure.\n" + GOOD + EOS)] * 2)

    reply = (await ask(glm_cluster)).json()
    streamed = await ask_stream(glm_cluster)

    choice = reply["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Sure."
    (call,) = choice["message"]["tool_calls"]
    assert call["type"] == "function"
    assert call["function"]["name"] == "w"
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}
    assert streamed.finish_reason == "tool_calls"
    assert streamed.message.content == "Sure."
    assert streamed.message.tool_calls[0].function.arguments == call["function"]["arguments"]
    request = decode_requests(glm_cluster)[0]
    assert "Token(" in request["sampling_options"]["guided_decoding"]["grammar"]
    assert request["extra_args"]["grammar_prefix_tokens"] == 0
    prefill = glm_cluster.requests("prefill")[0]["request"]
    assert not prefill["sampling_options"].get("guided_decoding")


@pytest.mark.parametrize("is_stream", [False, True])
async def test_an_undeclared_call_is_generated_again_from_where_it_began(
    glm_cluster, encode, is_stream
):
    glm_cluster.script(outputs=[encode("Sure.\n" + UNDECLARED + EOS), encode(GOOD + EOS)])

    if is_stream:
        choice = (await ask_stream(glm_cluster)).model_dump()
    else:
        reply = (await ask(glm_cluster)).json()
        choice = reply["choices"][0]
        whole = encode("Sure.\n" + GOOD + EOS)
        assert reply["usage"]["completion_tokens"] == len(whole), "what was discarded is not billed"

    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Sure."
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "w"
    first, second = decode_requests(glm_cluster)
    kept = second["extra_args"]["grammar_prefix_tokens"]
    assert second["token_ids"] == first["token_ids"] + encode("Sure.\n" + GOOD)[:kept]
    assert 1 <= kept <= len(encode("Sure.\n"))


async def test_a_second_fault_is_an_error_and_never_a_success(glm_cluster, encode):
    glm_cluster.script(outputs=[encode(UNDECLARED + EOS)] * 4)

    reply = await ask(glm_cluster)
    async with httpx.AsyncClient(timeout=60) as client:
        url = f"{glm_cluster.url}/v1/chat/completions"
        stream = (await client.post(url, json=body(stream=True))).text

    assert reply.status_code == 500
    assert reply.json()["error"]["code"] == "invalid_tool_call"
    assert "weather" in reply.json()["error"]["message"]
    last = [line for line in stream.splitlines() if line.startswith("data:")][-1]
    assert json.loads(last[5:])["error"]["code"] == "invalid_tool_call"
    assert "[DONE]" not in stream
    assert len(decode_requests(glm_cluster)) == 4


async def test_what_no_grammar_can_enforce_is_caught_before_it_leaves(glm_cluster, encode):
    bad = GOOD.replace("city", "cities").replace("Paris", "[1, 1]")
    good = bad.replace("[1, 1]", "[1, 2]")
    glm_cluster.script(outputs=[encode(bad + EOS), encode(good + EOS)])

    choice = await ask_stream(glm_cluster, tools=[REPEATED])

    (call,) = choice.message.tool_calls
    assert json.loads(call.function.arguments) == {"cities": [1, 2]}


async def test_a_greedy_request_is_not_retried_greedily(glm_cluster, encode):
    glm_cluster.script(outputs=[encode(UNDECLARED + EOS), encode(GOOD + EOS)])

    await ask(glm_cluster, temperature=0, seed=7)

    first, second = (request["sampling_options"] for request in decode_requests(glm_cluster))
    assert (first["temperature"], first["seed"]) == (0, 7)
    assert second["temperature"] > 0
    assert second["seed"] == 8


async def test_a_call_goes_on_elsewhere_under_its_grammar_after_a_workers_loss(
    make_cluster, encode, glm_dir
):
    cluster = make_cluster(decode=2, model_dir=glm_dir)
    whole = encode(GOOD + EOS)
    cluster.script(outputs=[whole], is_continued=True, die_after_decode=5)

    choice = await ask_stream(cluster)

    assert choice.finish_reason == "tool_calls"
    assert json.loads(choice.message.tool_calls[0].function.arguments) == {"city": "Paris"}
    requests = decode_requests(cluster)
    resumed = next(r for r in requests if r["extra_args"]["grammar_prefix_tokens"])
    assert resumed["extra_args"]["grammar_prefix_tokens"] == 5
    assert resumed["token_ids"][-5:] == whole[:5]
    grammars = {r["sampling_options"]["guided_decoding"]["grammar"] for r in requests}
    assert len(grammars) == 1


async def test_a_structured_answer_is_checked_as_a_whole(glm_cluster, encode):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    glm_cluster.script(outputs=[encode('{"n": "x"}' + EOS), encode('{"n": 5}' + EOS)])

    reply = (await ask(glm_cluster, tools=None, response_format=wanted)).json()

    assert json.loads(reply["choices"][0]["message"]["content"]) == {"n": 5}
    assert reply["choices"][0]["finish_reason"] == "stop"


async def test_a_model_without_tools_says_so(make_cluster):
    cluster = make_cluster(prefill=0, decode=0)

    reply = await ask(cluster)

    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "tools"


async def test_a_stop_string_ends_the_content_and_is_not_looked_for_in_arguments(
    glm_cluster, encode
):
    glm_cluster.script(outputs=[encode("Sure.\n" + GOOD + EOS), encode("So Paris it is" + EOS)])

    called = (await ask(glm_cluster, stop=["Paris"])).json()["choices"][0]
    stopped = (await ask(glm_cluster, stop=["Paris"])).json()["choices"][0]

    assert called["finish_reason"] == "tool_calls"
    assert stopped["message"]["content"] == "So "
    assert stopped["finish_reason"] == "stop"
