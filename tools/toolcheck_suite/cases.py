"""The cases of tests/toolcall/cases: what the model writes, and the only right answer to it.

Invariant: a case says the same for every driver. Where an answer is right that the grammar would
not have let through, or wrong although the grammar lets it through, the case names the reason
(`tolerated`, `unenforced`); everywhere else the grammar accepts exactly what is right.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from toolcheck_suite.notation import Output, parse

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "toolcall" / "cases"
TOOLS_FILE = "tools.yaml"
OTHER_FILES = frozenset({TOOLS_FILE, "bad_requests.yaml", "live_schemas.yaml"})
"""Files of the folder that hold no outputs."""
REQUEST_FIELDS = (
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "structured_outputs",
    "messages",
)
CASE_FIELDS = frozenset(
    {
        *REQUEST_FIELDS,
        "id",
        "source",
        "why",
        "format",
        "start",
        "controls",
        "tools",
        "output",
        "then",
        "ends",
        "expect",
        "value",
        "tolerated",
        "unenforced",
    }
)
EXPECT_FIELDS = frozenset({"reasoning", "content", "calls", "finish", "fault"})
VALUE_FIELDS = frozenset({"schema", "wire", "is", "text", "fault"})

Start = Literal["fresh", "in_reasoning", "after_reasoning"]
Verdict = Literal["accept", "refuse", "prefix"]


class BadCase(ValueError):
    """A case file is written wrongly."""


@dataclass(frozen=True)
class Call:
    """A call that the client must get; `text` is set where the argument text itself matters."""

    name: str
    arguments: Any
    text: str | None = None


@dataclass(frozen=True)
class Expected:
    """The answer, or the kind of fault that takes its place."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[Call, ...] = ()
    finish: str = "stop"
    fault: str | None = None


@dataclass(frozen=True)
class Case:
    """One output of a model and what becomes of it."""

    id: str
    group: str
    source: str
    why: str
    format: str
    start: Start
    has_family_tokens: bool
    """True: the tokenizer has the control tokens of every family; False: only GLM's."""
    request: Mapping[str, Any] = field(hash=False)
    """tools, tool_choice and the like, as in a request's body."""
    output: Output
    ends: Literal["stop", "length"]
    """Why the engine ended."""
    expected: Expected
    then: Output | None = None
    """What the engine writes when it is asked a second time."""
    then_expected: Expected | None = None
    tolerated: str | None = None
    unenforced: str | None = None

    @property
    def is_valid(self) -> bool:
        """False when the output must end in an error."""
        return self.expected.fault is None

    @property
    def grammar(self) -> Verdict:
        """What the grammar makes of the output: a prefix is accepted but may not end there."""
        if self.output.refused_at is not None:
            return "refuse"
        return "accept" if self.ends == "stop" else "prefix"


@cache
def load(folder: Path = FOLDER) -> tuple[Case, ...]:
    """Every case of the folder. Raises BadCase."""
    tools = read_yaml(folder / TOOLS_FILE)
    cases = [
        case
        for path in sorted(folder.glob("*.yaml"))
        if path.name not in OTHER_FILES
        for case in _cases(path, tools)
    ]
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise BadCase(f"{case.group}: the id {case.id} is used twice")
        seen.add(case.id)
    return tuple(cases)


def tool(name: str, parameters: Any, **more: Any) -> dict[str, Any]:
    """An OpenAI tool definition."""
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


def read_yaml(path: Path) -> Any:
    """The content of a case file."""
    return yaml.load(path.read_text(), yaml.CSafeLoader)


def _cases(path: Path, tools: Mapping[str, Any]) -> Iterator[Case]:
    content = read_yaml(path)
    for written in content["cases"]:
        try:
            yield _case(path.stem, {**content.get("defaults", {}), **written}, content, tools)
        except (BadCase, ValueError, KeyError, TypeError) as error:
            raise BadCase(f"{path.name}, {written.get('id')}: {error!r}") from error


def _case(
    group: str, written: dict[str, Any], content: Mapping[str, Any], tools: Mapping[str, Any]
) -> Case:
    _only(written, CASE_FIELDS)
    if "value" in written:
        written = _from_value(written, content.get("defs", {}))
    output = parse(written["output"])
    ends = written.get("ends", "stop")
    then = written.get("then")
    case = Case(
        id=written["id"],
        group=group,
        source=str(written["source"]),
        why=written.get("why", ""),
        format=written.get("format", "glm47"),
        start=written.get("start", "in_reasoning"),
        has_family_tokens=written.get("controls", "glm") == "families",
        request=_request(written, tools),
        output=output,
        ends=ends,
        expected=_expected(written["expect"], written, ends),
        then=None if then is None else parse(then["output"]),
        then_expected=None if then is None else _expected(then["expect"], written, "stop"),
        tolerated=written.get("tolerated"),
        unenforced=written.get("unenforced"),
    )
    _check_reasons(case)
    return case


def _check_reasons(case: Case) -> None:
    is_refused = case.grammar == "refuse"
    if is_refused == case.is_valid and not (case.tolerated if is_refused else case.unenforced):
        raise BadCase(
            "the grammar's verdict differs from the answer's: say why (tolerated, unenforced)"
        )
    if case.tolerated and not (is_refused and case.is_valid):
        raise BadCase("tolerated is for right answers that the grammar refuses")
    if case.unenforced and (is_refused or case.is_valid):
        raise BadCase("unenforced is for wrong answers that the grammar accepts")


def _request(written: Mapping[str, Any], tools: Mapping[str, Any]) -> dict[str, Any]:
    request = {name: written[name] for name in REQUEST_FIELDS if name in written}
    declared = [_tool(entry, tools) for entry in written.get("tools", ())]
    if declared:
        request["tools"] = declared
    choice = request.get("tool_choice")
    if isinstance(choice, str) and choice not in ("auto", "none", "required"):
        request["tool_choice"] = {"type": "function", "function": {"name": choice}}
    return request


def _tool(entry: Any, tools: Mapping[str, Any]) -> dict[str, Any]:
    """A tool is named (of tools.yaml), or written out as {name: parameters}."""
    if isinstance(entry, str):
        return tool(entry, tools[entry])
    (name, parameters), *more = entry.items()
    return tool(name, parameters, **dict(more))


def _expected(written: Mapping[str, Any], case: Mapping[str, Any], ends: str) -> Expected:
    _only(written, EXPECT_FIELDS)
    if "fault" in written:
        return Expected(fault=written["fault"], finish="")
    calls = tuple(_call(entry) for entry in written.get("calls", ()))
    is_named = case.get("tool_choice", "auto") not in ("auto", "none", "required")
    finish = "length" if ends == "length" else "tool_calls" if calls and not is_named else "stop"
    return Expected(
        reasoning=written.get("reasoning", ""),
        content=written.get("content", ""),
        calls=calls,
        finish=written.get("finish", finish),
    )


def _call(entry: Mapping[str, Any]) -> Call:
    """A call is {name: arguments}; arguments written as a string are compared as text too."""
    ((name, arguments),) = entry.items()
    if isinstance(arguments, str):
        return Call(name, json.loads(arguments), arguments)
    return Call(name, arguments)


def _from_value(written: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """One argument `x` of a tool `f`: the short way to write a case about a single value."""
    written = dict(written)
    value = written.pop("value")
    _only(value, VALUE_FIELDS)
    schema: dict[str, Any] = {"type": "object", "properties": {"x": value["schema"]}}
    schema["required"] = ["x"]
    used = {name: definitions[name] for name in _definitions_used(value["schema"], definitions)}
    if used:
        schema["$defs"] = used
    if "fault" in value:
        expect = {"fault": value["fault"]}
    else:
        arguments = '{"x": ' + value["text"] + "}" if "text" in value else {"x": value["is"]}
        expect = {"reasoning": "t", "calls": [{"f": arguments}]}
    call = f"«tool_call»f«arg_key»x«/arg_key»«arg_value»{value['wire']}«/arg_value»«/tool_call»"
    return {**written, "tools": [{"f": schema}], "output": f"t«/think»{call}", "expect": expect}


def _definitions_used(schema: Any, definitions: Mapping[str, Any]) -> list[str]:
    """Names that the schema refers to, and those that these refer to."""
    used: list[str] = []
    waiting = [schema]
    while waiting:
        text = json.dumps(waiting.pop())
        for name in definitions:
            if f'"#/$defs/{name}"' in text and name not in used:
                used.append(name)
                waiting.append(definitions[name])
    return used


def _only(written: Mapping[str, Any], known: frozenset[str]) -> None:
    if unknown := set(written) - known:
        raise BadCase(f"unknown fields {sorted(unknown)}; known are {sorted(known)}")
