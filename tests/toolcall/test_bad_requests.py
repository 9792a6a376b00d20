"""Requests that must be refused: by the request validator itself, and by the router with a 400."""

import pytest

from tests.toolcall.cluster import MODEL_NAME
from tests.toolcall.parsing import GUIDED, plan_of
from toolcall.errors import InvalidToolRequest
from toolcall.requests import check_history, plan_output
from toolcheck_suite import cases, requests
from toolcheck_suite.client import Client

NOT_OF_TOOLS = ("functions",)
"""Fields that the router refuses before anything looks at tools."""


def refused_param(body):
    """The path that the validator names, None when it refuses nothing."""
    try:
        check_history(body["messages"])
        plan_output(
            tools=body.get("tools"),
            tool_choice=body.get("tool_choice"),
            parallel_tool_calls=body.get("parallel_tool_calls"),
            response_format=body.get("response_format"),
            guided={name: body[name] for name in GUIDED if name in body},
        )
    except InvalidToolRequest as error:
        return error.param
    return None


@pytest.mark.parametrize("bad", requests.load(), ids=lambda bad: bad.id)
def test_the_validator_names_the_path_of_the_fault(bad):
    if not any(name in bad.body for name in NOT_OF_TOOLS):
        assert refused_param(bad.body) == bad.param


@pytest.mark.parametrize("case", cases.load(), ids=lambda case: case.id)
def test_no_case_is_refused(case):
    check_history(case.request.get("messages", []))

    plan_of(case)


def test_the_router_answers_400_with_the_same_path(cluster_of):
    wrong = {}

    with Client(cluster_of("glm47").url, MODEL_NAME, None) as client:
        for bad in requests.load():
            for ask in (client.whole, client.streamed):
                error = ask(bad.body).error
                if error is None or (error.status, error.param) != (400, bad.param):
                    wrong[bad.id] = error

    assert wrong == {}
