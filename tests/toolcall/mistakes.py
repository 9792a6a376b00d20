"""The mistakes that servers make with tool calls, each with the rule that it breaks.

They are what upstream parsers and frontends were seen to do: calls dropped or renamed, values of
other types, markup in content, streams that differ from whole answers, bad requests accepted.
"""

import json

from tests.toolcall.wrong_server import reply


def calls_of(answer):
    return answer.get("message", {}).get("tool_calls", [])


def every_call(change):
    """A mistake in each call's function."""

    def mistake(request, answer):
        for one in calls_of(answer):
            change(one["function"])
        return answer

    return mistake


def in_arguments(change):
    """A mistake in each call's arguments, given and returned as JSON values."""

    def on(function):
        function["arguments"] = json.dumps(change(json.loads(function["arguments"])))

    return every_call(on)


def drops_calls(request, answer):
    return reply(finish="stop") if calls_of(answer) else answer


def drops_calls_and_says_tool_calls(request, answer):
    if calls_of(answer):
        answer["message"]["tool_calls"] = []
        answer["finish"] = "tool_calls"
    return answer


def writes_numbers_as_strings(arguments):
    return {key: str(v) if isinstance(v, int) else v for key, v in arguments.items()}


def writes_integers_with_a_fraction(function):
    function["arguments"] = function["arguments"].replace('"n": 7', '"n": 7.0')


def repeats_a_key(function):
    function["arguments"] = function["arguments"].replace(
        '{"city": "Paris"}', '{"city": "Rome", "city": "Paris"}'
    )


def leaves_markup_in_content(request, answer):
    if request.get("tool_choice") == "none" and "message" in answer:
        answer["message"]["content"] = "<tool_call>get_weather</tool_call>"
    return answer


def calls_despite_none(request, answer):
    if request.get("tool_choice") == "none" and "message" in answer:
        return reply(calls=[{"name": "get_time", "arguments": "{}"}])
    return answer


def renames(function):
    function["name"] = "get_wether"


def empties_arguments(function):
    if function["arguments"] == "{}":
        function["arguments"] = ""


def ignores_parallel_off(request, answer):
    if request.get("parallel_tool_calls") is False and calls_of(answer):
        names = ("get_time", "get_time")
        return reply(calls=[{"name": name, "arguments": "{}"} for name in names])
    return answer


def ignores_the_name(request, answer):
    if isinstance(request.get("tool_choice"), dict) and len(request["tools"]) > 1:
        return reply(calls=[{"name": "get_time", "arguments": "{}"}], finish="stop")
    return answer


def says_stop_with_calls(request, answer):
    return {**answer, "finish": "stop"} if calls_of(answer) else answer


def fences_json(request, answer):
    content = answer.get("message", {}).get("content") or ""
    if content.startswith("{"):
        answer["message"]["content"] = f"```json\n{content}\n```"
    return answer


def refuses_history(request, answer):
    if len(request["messages"]) > 1 and "message" in answer:
        return {"status": 400, "error": {"message": "no tools in history", "code": None}}
    return answer


def sends_arguments_as_objects(function):
    function["arguments"] = json.loads(function["arguments"])


def accepts_bad_requests(request, answer):
    return reply("Fine.") if answer.get("status") == 400 else answer


def answers_500_to_bad_requests(request, answer):
    return {**answer, "status": 500} if answer.get("status") == 400 else answer


def gives_no_ids(request, answer):
    for one in calls_of(answer):
        one["id"] = ""
    return answer


REPLY_MISTAKES = {
    "drops calls": (drops_calls, "R6"),
    "drops calls, says tool_calls": (drops_calls_and_says_tool_calls, "R5"),
    "wrong types": (in_arguments(writes_numbers_as_strings), "R1"),
    "a key is missing": (in_arguments(lambda _: {}), "R1"),
    "an unknown key": (in_arguments(lambda arguments: {**arguments, "zz": 1}), "R1"),
    "a fraction": (every_call(writes_integers_with_a_fraction), "R1"),
    "a key twice": (every_call(repeats_a_key), "R1"),
    "empty arguments": (every_call(empties_arguments), "R1"),
    "an undeclared name": (every_call(renames), "R1"),
    "markup in content": (leaves_markup_in_content, "R4"),
    "a call despite none": (calls_despite_none, "R6"),
    "two calls despite parallel off": (ignores_parallel_off, "R6"),
    "another tool than the named": (ignores_the_name, "R6"),
    "stop with calls": (says_stop_with_calls, "R5"),
    "JSON in a fence": (fences_json, "R1"),
    "history refused": (refuses_history, "R0"),
    "arguments as objects": (every_call(sends_arguments_as_objects), "R0"),
    "calls without ids": (gives_no_ids, "R0"),
    "bad requests accepted": (accepts_bad_requests, "R7"),
    "bad requests crash it": (answers_500_to_bad_requests, "R7"),
}


def changed(events, change):
    """The stream with each call's delta changed in place."""
    for event in events:
        for choice in event["choices"]:
            for call in choice["delta"].get("tool_calls", ()):
                change(call)
    return [*events, "[DONE]"]


def without_calls_after_the_first(events):
    return [event for event in events if '"index": 1' not in json.dumps(event)] + ["[DONE]"]


def without_the_end_of_arguments(events):
    kept = [event for event in events if '"arguments": "ity' not in json.dumps(event)]
    return [*kept, "[DONE]"]


def without_finish(events):
    return [*events[:-1], "[DONE]"]


def with_a_late_delta(events):
    return [*events, {**events[0], "choices": [{"delta": {"content": "late"}}]}, "[DONE]"]


def with_content_doubled(events):
    return [*events[:2], *events[1:], "[DONE]"]


STREAM_MISTAKES = {
    "no [DONE]": (lambda events: events, "R0"),
    "no finish": (without_finish, "R0"),
    "something after the finish": (with_a_late_delta, "R0"),
    "no JSON": (lambda events: ["{", *events, "[DONE]"], "R0"),
    "the name again and again": (
        lambda events: changed(events, lambda call: call["function"].update(name="get_weather")),
        "R0",
    ),
    "index always 0": (lambda events: changed(events, lambda call: call.update(index=0)), "R0"),
    "no index": (lambda events: changed(events, lambda call: call.pop("index")), "R0"),
    "no type": (lambda events: changed(events, lambda call: call.pop("type", 0)), "R0"),
    "the second call is lost": (without_calls_after_the_first, "R3"),
    "arguments are cut": (without_the_end_of_arguments, "R3"),
    "content differs": (with_content_doubled, "R3"),
}
