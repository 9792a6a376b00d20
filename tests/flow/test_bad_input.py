"""What users get wrong: a clear OpenAI error each time, and nothing breaks."""

import httpx
import openai
import pytest

GOOD = {"model": "smollm2", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}


@pytest.fixture
def post(stack):
    def send(json=None, content=None, key=stack.api_key):
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        if content is not None:
            headers["content-type"] = "application/json"
        return httpx.post(
            f"{stack.base_url}/chat/completions",
            json=json,
            content=content,
            headers=headers,
            timeout=60,
        )

    return send


def assert_openai_error(reply, status, code=None, param=None):
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    assert error["message"]
    assert reply.headers["x-request-id"]
    if code is not None:
        assert error["code"] == code
    if param is not None:
        assert (error["param"] or "").startswith(param)
    return error


@pytest.mark.parametrize("key", [None, "x", "wrong", "mr-00000000-" + "x" * 43])
def test_no_or_a_wrong_key(post, key):
    assert_openai_error(post(GOOD, key=key), 401)


def test_an_unknown_model(post):
    assert_openai_error(post({**GOOD, "model": "gpt-9"}), 404, "model_not_found")


@pytest.mark.parametrize("content", [b"not json", b"", b"[1]", b'"text"', b'{"model": "smollm2"'])
def test_a_body_that_is_no_json_object(post, content):
    assert_openai_error(post(content=content), 400)


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "messages"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages"),
        ({"model": 7}, "model"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 99}, "temperature"),
        ({"stream": "yes"}, "stream"),
        ({"stop": 5}, "stop"),
        ({"n": 0}, "n"),
    ],
)
def test_a_wrong_field_is_named(post, changes, param):
    assert_openai_error(post({**GOOD, **changes}), 400, param=param)


def test_a_missing_field_is_named(post):
    assert_openai_error(post({"model": "smollm2"}), 400, param="messages")
    assert_openai_error(post({"messages": GOOD["messages"]}), 400, param="model")


def test_a_prompt_longer_than_the_context_names_both_lengths(post):
    long = [{"role": "user", "content": "word " * 9000}]

    error = assert_openai_error(
        post({**GOOD, "messages": long}), 400, "context_length_exceeded", "messages"
    )

    assert "8192" in error["message"]
    assert "9031" in error["message"]


def test_a_body_of_20_mb(post):
    assert_openai_error(
        post({**GOOD, "messages": [{"role": "user", "content": "x" * 20_000_000}]}), 413
    )


def test_client_sent_kv_transfer_params_are_ignored(post):
    forged = {
        "do_remote_prefill": True,
        "remote_block_ids": [[99999]],
        "remote_engine_id": "x",
        "remote_request_id": "x",
        "remote_host": "127.0.0.1",
        "remote_port": 1,
    }

    reply = post({**GOOD, "kv_transfer_params": forged, "nvext": {"a": 1}, "extra_args": forged})

    assert reply.status_code == 200


def test_unknown_paths_and_methods_answer_in_openais_shape(stack):
    headers = {"authorization": f"Bearer {stack.api_key}"}

    for method, path, status in [
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/v1/models", 405),
    ]:
        reply = httpx.request(method, f"{stack.url}{path}", headers=headers)
        assert_openai_error(reply, status)


def test_the_sdk_raises_its_own_errors(stack):
    with (
        openai.OpenAI(base_url=stack.base_url, api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.chat.completions.create(**GOOD)
    with openai.OpenAI(base_url=stack.base_url, api_key=stack.api_key, max_retries=0) as client:
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(**{**GOOD, "model": "gpt-9"})
        with pytest.raises(openai.BadRequestError, match="max_tokens"):
            client.chat.completions.create(**{**GOOD, "max_tokens": 0})


def test_nothing_broke(client):
    answer = client.chat.completions.create(
        model="smollm2",
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
        max_tokens=16,
    )

    assert "Paris" in answer.choices[0].message.content
