"""The last check before anything leaves: each call, and a structured answer, as a whole.

Invariant: a call that passes names a tool that this answer may call, and its arguments are JSON
that the client's own schema accepts. The guard knows nothing of grammars, formats or normal forms:
it reads the text that the client will read, with the schema that the client sent.
"""

from functools import cached_property
from itertools import islice
from typing import Any

from jsonschema.exceptions import ValidationError, best_match
from jsonschema.protocols import Validator

from toolcall.errors import Fault, FaultKind
from toolcall.plan import OutputPlan, Structure
from toolcall.refusals import shorten, shown
from toolcall.schema.dialects import metered, validator_of
from toolcall.schema.patterns import matches_whole
from toolcall.schema.work import MOST_STEPS, TooMuchWork, Work
from toolcall.strict_json import NotStrictJson, read_json

MOST_MESSAGE = 500
MOST_PATH = 120
MOST_ERRORS = 100
"""Errors among which the most telling one is looked for."""
CHECKED = 100
"""Steps (schema/work.py) for each character of a text, beside those of any check: 20 us. So a long
answer under a union of dozens is checked, and what multiplies with its depth is given up."""
EXPECTED = {
    "const": "{}",
    "enum": "one of {}",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "pattern": "a match of {}",
    "format": "the format {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} properties",
    "maxProperties": "at most {} properties",
}
"""What a keyword asks for, given its value."""
ARTICLES = {
    "array": "an array",
    "boolean": "true or false",
    "integer": "an integer without fraction or exponent",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a string",
}


class Guard:
    """Checks the calls and the content of answers to one plan."""

    def __init__(self, plan: OutputPlan) -> None:
        self._plan = plan
        self._sources = {tool.name: tool.schema.source for tool in plan.callable_tools()}
        self._validators: dict[str, Validator] = {}

    def check_call(self, name: str, arguments: str, call: int) -> Fault | None:
        """The fault of a whole call, the answer's `call`-th from 0; None when it may leave."""
        if name not in self._sources:
            return self._fault_of_name(name, call)
        if call > 0 and not self._plan.is_parallel:
            return _fault("too_many_calls", f"{name}: one call was allowed, this is another", call)
        try:
            value = read_json(arguments)
        except NotStrictJson as error:
            got = shown(arguments)
            return _fault("invalid_arguments", f"{name}: arguments: {error}, got {got}", call)
        if not isinstance(value, dict):
            got = shown(value)
            return _fault(
                "invalid_arguments", f"{name}: arguments: expected an object, got {got}", call
            )
        problem = _problem(self._validator(name), value, "arguments", _work(arguments))
        return _fault("invalid_arguments", f"{name}: {problem}", call) if problem else None

    def check_content(self, text: str) -> Fault | None:
        """The fault of a whole content under the plan's structure; None when it may leave."""
        problem = self._problem_of_content(text)
        return _fault("invalid_content", problem) if problem else None

    def _problem_of_content(self, text: str) -> str | None:
        match self._plan.structure:
            case Structure(kind="regex", pattern=str(pattern)):
                try:
                    is_match = matches_whole(pattern, text, _work(text))
                except TooMuchWork as error:
                    return f"content: cannot be checked, {error}"
                if not is_match:
                    return f"content: expected a match of {shown(pattern)}, got {shown(text)}"
            case Structure(kind="choice", choices=choices):
                if text not in choices:
                    expected = shown(list(choices), 200)
                    return f"content: expected one of {expected}, got {shown(text)}"
            case Structure(kind="json"):
                try:
                    value = read_json(text)
                except NotStrictJson as error:
                    return f"content: {error}, got {shown(text)}"
                return _problem(self._content_validator, value, "content", _work(text))
        return None

    @cached_property
    def _content_validator(self) -> Validator:
        structure = self._plan.structure
        return validator_of(structure.schema.source if structure and structure.schema else True)

    def _validator(self, name: str) -> Validator:
        if name not in self._validators:
            self._validators[name] = validator_of(self._sources[name])
        return self._validators[name]

    def _fault_of_name(self, name: str, call: int) -> Fault:
        names = shorten(", ".join(self._sources) or "none", 200)
        if any(tool.name == name for tool in self._plan.tools):
            return _fault("wrong_tool", f"{name} may not be called here, only {names}", call)
        message = f"{shown(name)} is not a declared tool; declared are {names}"
        return _fault("undeclared_tool", message, call)


def _fault(kind: FaultKind, message: str, call: int | None = None) -> Fault:
    return Fault(kind, shorten(message, MOST_MESSAGE), call)


def _work(text: str) -> Work:
    return Work(MOST_STEPS + CHECKED * len(text))


def _problem(validator: Validator, value: Any, root: str, work: Work) -> str | None:
    """What is wrong with a value, None when the client's schema accepts it."""
    try:
        error = best_match(islice(metered(validator, work).iter_errors(value), MOST_ERRORS))
    except RecursionError:
        return f"{root}: nested too deeply to be checked"
    except TooMuchWork as error:
        return f"{root}: cannot be checked, {error}"
    if error is None:
        return None
    path = root + "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path
    )
    return f"{shorten(path, MOST_PATH)}: {_complaint(error)}"


def _complaint(error: ValidationError) -> str:
    got = shown(error.instance)
    keyword = str(error.validator)
    wanted: Any = error.validator_value
    schema: Any = error.schema
    value: Any = error.instance
    if keyword == "required" and isinstance(value, dict):
        missing = next(name for name in wanted if name not in value)
        return f"expected the property {shown(missing)}, got {got}"
    if keyword == "type":
        names = [wanted] if isinstance(wanted, str) else wanted
        return f"expected {' or '.join(ARTICLES[name] for name in names)}, got {got}"
    if keyword in EXPECTED:
        return f"expected {EXPECTED[keyword].format(shown(wanted, 200))}, got {got}"
    if keyword == "additionalProperties" and wanted is False:
        known = schema.get("properties", {})
        extra = [name for name in value if name not in known]
        return f"expected no further properties, got {shown(extra)}"
    # The rest in jsonschema's words, which repeat the instance first.
    return shorten(error.message, 300)
