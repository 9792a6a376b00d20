"""The tool calls of the conversation so far: every call answered once, every answer to a call.

Models are trained on whole exchanges; a result without its call, or old arguments that are no JSON,
would reach the prompt as something the chat template cannot write.
"""

from typing import Any

from toolcall.refusals import kind, refusal, shown
from toolcall.strict_json import NotStrictJson, read_json

ANSWERS_BEFORE = ("user", "assistant")
"""Messages before which every open call must have its answer."""


def check_history(messages: Any) -> None:
    """Raises InvalidToolRequest at the first message whose calls or results do not fit."""
    if not isinstance(messages, list):
        raise refusal("messages", "a list", kind(messages))
    known: dict[str, str] = {}
    answered: set[str] = set()
    for at, message in enumerate(messages):
        param = f"messages[{at}]"
        if not isinstance(message, dict):
            raise refusal(param, "an object", kind(message))
        role = message.get("role")
        if role in ANSWERS_BEFORE:
            _check_answered(known, answered, f"before {param}")
        if role != "assistant":
            _check_no_calls(message, param)
        elif calls := _calls(message, param):
            known, answered = calls, set()
        if role == "tool":
            answered.add(_answered(message, known, answered, param))
    _check_answered(known, answered, "before the answer")


def _check_answered(known: dict[str, str], answered: set[str], when: str) -> None:
    for call_id, param in known.items():
        if call_id not in answered:
            raise refusal(
                param,
                f"a tool message that answers it {when}",
                "none",
                f'Send {{"role": "tool", "tool_call_id": {shown(call_id)}, "content": ...}}.',
            )


def _answered(message: dict[str, Any], known: dict[str, str], answered: set[str], at: str) -> str:
    """The call that a tool message answers."""
    param = f"{at}.tool_call_id"
    call_id = message.get("tool_call_id")
    if not isinstance(call_id, str) or not call_id:
        raise refusal(param, "the id of a call", kind(call_id))
    if call_id not in known:
        raise refusal(
            param,
            "the id of a call of the last assistant message with tool_calls",
            f"{shown(call_id)}, which is none",
        )
    if call_id in answered:
        raise refusal(param, "one answer to each call", f"a second one to {shown(call_id)}")
    return call_id


def _check_no_calls(message: dict[str, Any], at: str) -> None:
    """A message of anybody but the assistant has none."""
    for name in ("tool_calls", "function_call"):
        if message.get(name):
            raise refusal(
                f"{at}.{name}",
                "tool calls in messages of the assistant only",
                f"them in one of role {shown(message.get('role'))}",
            )


def _calls(message: dict[str, Any], at: str) -> dict[str, str]:
    """The ids of a message's calls with their paths."""
    if message.get("function_call") is not None:
        raise refusal(
            f"{at}.function_call", "tool_calls", "its older form", "Send tool_calls instead."
        )
    calls = message.get("tool_calls")
    if calls is None:
        return {}
    if not isinstance(calls, list):
        raise refusal(f"{at}.tool_calls", "a list", kind(calls))
    found: dict[str, str] = {}
    for number, call in enumerate(calls):
        param = f"{at}.tool_calls[{number}]"
        call_id = _call_id(call, param)
        if call_id in found:
            raise refusal(f"{param}.id", "each id once", f"{shown(call_id)} again")
        found[call_id] = param
    return found


def _call_id(call: Any, param: str) -> str:
    if not isinstance(call, dict):
        raise refusal(param, "an object", kind(call))
    call_id = call.get("id")
    if not isinstance(call_id, str) or not call_id:
        raise refusal(f"{param}.id", "a string that is not empty", kind(call_id))
    if call.get("type") != "function":
        raise refusal(f"{param}.type", '"function"', shown(call.get("type")))
    function = call.get("function")
    if not isinstance(function, dict):
        raise refusal(f"{param}.function", "an object", kind(function))
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise refusal(f"{param}.function.name", "a string that is not empty", kind(name))
    _check_arguments(function.get("arguments"), f"{param}.function.arguments")
    return call_id


def _check_arguments(arguments: Any, param: str) -> None:
    expected = "the text of a JSON object"
    if not isinstance(arguments, str):
        raise refusal(param, expected, kind(arguments), 'Send "{}" for no arguments.')
    try:
        value = read_json(arguments)
    except NotStrictJson as error:
        raise refusal(param, expected, shown(arguments), f"It is {error}.") from error
    if not isinstance(value, dict):
        raise refusal(param, expected, shown(arguments))
