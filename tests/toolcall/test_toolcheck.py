"""The tool itself: a server without faults passes, and each mistake that servers make is reported.

A checker that cannot fail is a defect, so there is one wrong server for each rule it knows.
"""

import json
import subprocess
import sys
import threading

import pytest

from tests.fixtures.processes import ROOT
from tests.toolcall.mistakes import (
    REPLY_MISTAKES,
    STREAM_MISTAKES,
    calls_of,
    drops_calls,
    in_arguments,
)
from tests.toolcall.wrong_server import reply, serving
from toolcheck_suite.__main__ import main


def check(url, capsys, *arguments):
    """Exit code, the counts of the last line, and the report."""
    code = main([url, "--model", "any", *arguments])
    text = capsys.readouterr().out
    return code, json.loads(text.splitlines()[-1]), text


def test_a_server_without_faults_passes_every_check(capsys):
    with serving() as url:
        code, counts, text = check(url, capsys, "--exact-params", "--scripted")

    assert code == 0, text
    assert counts["failed"] == counts["undecided"] == 0
    assert counts["passed"] > 500


@pytest.mark.parametrize("name", REPLY_MISTAKES)
def test_a_mistake_in_replies_is_reported_with_its_rule(name, capsys):
    mistake, rule = REPLY_MISTAKES[name]

    with serving(mistake) as url:
        code, counts, text = check(url, capsys)

    assert code == 1
    assert counts["failed"] > 0
    assert f"breaks    {rule}:" in text


@pytest.mark.parametrize("name", STREAM_MISTAKES)
def test_a_mistake_in_streams_is_reported_with_its_rule(name, capsys):
    mistake, rule = STREAM_MISTAKES[name]

    with serving(stream_mistake=mistake) as url:
        code, counts, text = check(url, capsys, "--only", "choices")

    assert code == 1
    assert counts["failed"] > 0
    assert f"breaks    {rule}:" in text


def test_a_failure_shows_what_was_sent_expected_and_came(capsys):
    with serving(drops_calls) as url:
        _, _, text = check(url, capsys, "--only", "choices")

    failure = text[text.index("FAILED choices/required") :]
    assert '"tool_choice": "required"' in failure
    assert "expected  a call, tool_choice is required" in failure
    assert "came      finish=stop content=''" in failure
    assert "breaks    R6: tool_choice and parallel_tool_calls hold" in failure


def test_another_param_is_a_remark_unless_it_is_promised(capsys):
    def names_the_model(request, answer):
        if "error" in answer:
            answer["error"]["param"] = "model"
        return answer

    with serving(names_the_model) as url:
        code, counts, text = check(url, capsys, "--only", "bad_requests")
        exact_code, exact_counts, _ = check(url, capsys, "--only", "bad_requests", "--exact-params")

    assert (code, counts["failed"]) == (0, 0)
    assert "param is model, ours is tools" in text
    assert exact_code == 1
    assert exact_counts["passed"] == 0
    assert exact_counts["failed"] >= counts["passed"] > 60


def test_a_cut_answer_decides_nothing_and_a_cut_call_in_it_is_a_failure(capsys):
    def is_cut(request, answer):
        return {**answer, "finish": "length"} if "message" in answer else answer

    def is_cut_in_a_call(request, answer):
        for one in calls_of(answer):
            one["function"]["arguments"] = one["function"]["arguments"][:-1]
        return is_cut(request, answer)

    with serving(is_cut) as url:
        code, counts, text = check(url, capsys, "--only", "choices")
    with serving(is_cut_in_a_call) as url:
        failed_code, _, failed_text = check(url, capsys, "--only", "choices")

    assert code == 1, "nothing was judged"
    assert counts["failed"] == counts["passed"] == 0
    assert "was cut at max_tokens" in text
    assert failed_code == 1
    assert "breaks    R1:" in failed_text


def test_a_server_that_is_not_greedy_is_not_blamed_for_its_streams(capsys):
    seen = []

    def says_another_thing_each_time(request, answer):
        if answer.get("message", {}).get("content"):
            seen.append(1)
            answer["message"]["content"] = f"Answer {len(seen)}"
        return answer

    with serving(says_another_thing_each_time) as url:
        _, counts, text = check(url, capsys, "--only", "history")

    assert counts["failed"] == counts["passed"] == 0
    assert "the same greedy request gave two answers" in text


def test_scripted_cases_fail_where_calls_vanish_or_values_are_coerced(capsys):
    def drops_faulty_calls(request, answer):
        return reply(finish="stop") if answer.get("status") == 500 else answer

    def coerces(arguments):
        return {key: 1 if value == "1" else value for key, value in arguments.items()}

    def does_both(request, answer):
        return in_arguments(coerces)(request, drops_faulty_calls(request, answer))

    with serving(does_both) as url:
        code, counts, text = check(url, capsys, "--only", "scripted", "--format", "glm47")

    assert code == 1
    assert counts["failed"] >= 100
    assert "FAILED scripted broken_calls/undeclared\n" in text
    assert "FAILED scripted unions_and_refs/string-or-boolean-one\n" in text
    assert "breaks    R2:" in text


def test_extra_fields_reach_the_live_requests_and_checks_may_run_together(capsys):
    seen = []
    together = threading.Barrier(4)

    def is_seen(request, answer):
        seen.append(request.get("chat_template_kwargs"))
        if len(seen) <= 4:
            together.wait(timeout=10)
        return answer

    extra = {"enable_thinking": False}
    more = ("--concurrency", "4", "--extra", json.dumps({"chat_template_kwargs": extra}))
    with serving(is_seen) as url:
        code, counts, text = check(url, capsys, "--only", "choices", *more)

    assert code == 0, text
    assert counts["passed"] == 14
    assert seen == [extra] * len(seen)


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--extra", "[1]", "expected a JSON object, got '[1]'"),
        ("--extra", "{", "'{' is not JSON"),
        ("--concurrency", "0", "expected a number of at least 1, got '0'"),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused(option, value, expected, capsys):
    with pytest.raises(SystemExit):
        main(["http://127.0.0.1:9", "--model", "any", option, value])

    assert expected in capsys.readouterr().err


def test_an_unreachable_server_fails_every_check(capsys):
    code, counts, text = check("http://127.0.0.1:9", capsys, "--only", "choices")

    assert code == 1
    assert counts["passed"] == 0
    assert "ConnectError" in text


def test_the_command_writes_every_check_to_a_file_and_counts_in_its_last_line(tmp_path):
    found = tmp_path / "found.json"

    with serving(drops_calls) as url:
        done = subprocess.run(
            [
                ROOT / "tools" / "toolcheck",
                url,
                "--model",
                "m",
                "--only",
                "choices",
                "--json",
                found,
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    last = json.loads(done.stdout.splitlines()[-1])
    written = json.loads(found.read_text())
    assert done.returncode == 1, done.stderr
    assert last["ok"] is False
    assert last["failed"] == written["failed"] > 0
    assert {check["state"] for check in written["checks"]} == {"passed", "failed"}


def test_the_tool_needs_nothing_of_the_platform():
    listing = (
        "import sys; import toolcheck_suite.__main__;"
        "print([m for m in sys.modules if m.split('.')[0] in ('toolcall', 'router', 'launcher')])"
    )

    done = subprocess.run(
        [sys.executable, "-c", listing],
        cwd=ROOT / "tools",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert done.stdout.strip() == "[]"
