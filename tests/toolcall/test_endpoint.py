"""The public endpoint of a real stack, judged by the tool that anyone can run against theirs."""

import json

import pytest

from toolcheck_suite.__main__ import main

pytestmark = pytest.mark.engine

MODEL = "smollm2-glm"
LIVE = (
    "--extra",
    '{"chat_template_kwargs": {"enable_thinking": false}}',  # it would think without end
    "--concurrency",
    "16",
)


def check(stack, capsys, *arguments):
    """Exit code, counts and report."""
    code = main(
        [stack.base_url, "--model", MODEL, "--key", stack.api_key, "--exact-params", *arguments]
    )
    text = capsys.readouterr().out
    return code, json.loads(text.splitlines()[-1]), text


def test_bad_requests_are_refused_with_the_path_of_their_fault(glm_stack, capsys):
    code, counts, text = check(glm_stack, capsys, "--only", "bad_requests")

    assert code == 0, text
    assert counts["undecided"] == 0


@pytest.mark.parametrize(
    ("group", "most_tokens", "least"),
    [
        ("choices", 96, 3),  # a forced call takes 20 to 60
        ("schemas", 96, 20),
        ("structures", 96, 3),
        ("history", 8, 0),  # what counts is that it is taken
    ],
)
def test_a_real_model_keeps_every_rule(group, most_tokens, least, glm_stack, capsys):
    """Undecided is not passed: so many checks must have come to a judgement.

    Few of the choices do: where it may, so small a model calls again until the limit cuts it.
    """
    _, counts, text = check(
        glm_stack, capsys, "--only", group, "--max-tokens", str(most_tokens), *LIVE
    )

    assert counts["failed"] == 0, text
    assert counts["passed"] >= least, text
