"""Random schemas and arguments: what is valid survives the wire, what is invalid never leaves.

`FUZZ_EXAMPLES=2000 ./tools/test tests/libs/toolcall/test_fuzz.py` looks longer and at random; the
default is a fixed set of examples that takes some twenty seconds.
"""

import json
import os
import string

import jsonschema
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis_jsonschema import from_schema

from benches.toolcall import wire
from toolcall.formats.table import FORMATS, TaggedArguments
from toolcall.guard import Guard
from toolcall.plan import OutputPlan, Structure
from toolcall.requests import plan_output
from toolcall.schema.match import matches
from toolcall.schema.normalise import normalise

# Minutes of one core: with the slow part.
pytestmark = pytest.mark.engine

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES") or "0")
PROFILE = settings(
    max_examples=EXAMPLES or 100,
    derandomize=not EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)
NAMES = st.sampled_from(["city", "days", "x", "größe", "a.b", "key with blanks", "$id", "<k>", "0"])
LITTLE_TEXT = st.text(alphabet=string.ascii_lowercase + "0<>/&\"'\\ \nä🙂", max_size=6)
TEXT = st.one_of(
    st.sampled_from("a0 \n\t<>/&\"'\\{}[]:,äß🙂\u2028"),
    st.characters(exclude_categories=["Cs"]),
)
SPELT_TAGS = ["</tool_call>", "<arg_key>", "</arg_value>", "<think>", "</think>", "<|user|>"]

BOUNDS = {"minimum": -50, "maximum": 50}
SCALARS = st.one_of(
    st.builds(
        lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more},
        st.integers(0, 3),
        st.integers(0, 12),
    ),
    st.just({"type": "string"}),
    st.sampled_from([{"type": "string", "pattern": p} for p in ("^[a-c]{1,4}$", "b", "^x|y$")]),
    st.sampled_from([{"type": "string", "format": f} for f in ("date", "uuid", "ipv4")]),
    st.just({"type": "integer"}),
    st.builds(
        lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more},
        st.integers(-300, 300),
        st.integers(0, 500),
    ),
    st.just({"type": "number", **BOUNDS}),
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.lists(
        st.one_of(LITTLE_TEXT, st.integers(-9, 9), st.booleans(), st.none()),
        min_size=1,
        max_size=4,
        unique_by=repr,
    ).map(lambda values: {"enum": values}),
    st.one_of(LITTLE_TEXT, st.integers(-9, 9)).map(lambda value: {"const": value}),
)


def objects_of(values):
    """Closed objects over these values; half of the properties are required."""

    def build(properties, required):
        names = [
            name for name, is_required in zip(properties, required, strict=False) if is_required
        ]
        schema = {"type": "object", "properties": properties, "additionalProperties": False}
        return {**schema, "required": names} if names else schema

    properties = st.dictionaries(NAMES, values, max_size=4)
    return st.builds(build, properties, st.lists(st.booleans(), min_size=4, max_size=4))


SCHEMAS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        objects_of(inner),
        st.builds(
            lambda items, low, more: {
                "type": "array",
                "items": items,
                "minItems": low,
                "maxItems": low + more,
            },
            inner,
            st.integers(0, 2),
            st.integers(0, 2),
        ),
        st.lists(inner, min_size=2, max_size=3).map(lambda options: {"anyOf": options}),
        st.sampled_from(["string", "integer", "boolean"]).map(lambda t: {"type": [t, "null"]}),
        st.builds(
            lambda values: {
                "type": "object",
                "additionalProperties": values,
                "maxProperties": 2,
            },
            inner,
        ),
    ),
    max_leaves=6,
)
TOOL_SCHEMAS = objects_of(SCHEMAS)
TOOL_FORMATS = st.sampled_from(sorted(FORMATS)).map(FORMATS.__getitem__)


def instances(schema):
    """Valid instances. hypothesis-jsonschema 0.23 makes no objects with today's hypothesis."""
    if "anyOf" in schema:
        return st.one_of([instances(option) for option in schema["anyOf"]])
    if isinstance(schema.get("type"), list):
        return st.one_of([instances({**schema, "type": kind}) for kind in schema["type"]])
    match schema.get("type"):
        case "object" if "properties" in schema:
            required = set(schema.get("required", ()))
            parts = {name: instances(part) for name, part in schema["properties"].items()}
            return st.fixed_dictionaries(
                {name: part for name, part in parts.items() if name in required},
                optional={name: part for name, part in parts.items() if name not in required},
            )
        case "object":
            values = instances(schema["additionalProperties"])
            return st.dictionaries(LITTLE_TEXT, values, max_size=schema["maxProperties"])
        case "array":
            items = instances(schema["items"])
            return st.lists(items, min_size=schema["minItems"], max_size=schema["maxItems"])
        case "number":
            # Without an exponent, which bounded numbers never have on the wire.
            return st.integers(-50_000, 50_000).map(lambda thousandths: thousandths / 1000)
        case "integer" if "minimum" not in schema:
            return st.integers(-(10**20), 10**20)
        case "string" if schema.get("format") == "uuid":
            return st.uuids().map(str)
        case "string" if "pattern" not in schema and "format" not in schema:
            most = schema.get("maxLength", 12)
            return st.text(TEXT, min_size=schema.get("minLength", 0), max_size=most)
        case _:
            return from_schema(schema)


def is_valid(schema, value):
    """JSON Schema's word, formats included."""
    draft = jsonschema.Draft202012Validator
    return draft(schema, format_checker=draft.FORMAT_CHECKER).is_valid(value)


def plan_for(schema):
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    return plan_output(
        tools=[tool], tool_choice="required", parallel_tool_calls=True, response_format=None
    )


def is_representable(tool_format, plan, arguments):
    """False for what the format itself cannot say.

    A raw string that reads as another type that the schema allows too is that other type; and
    where a closing literal is text to the tokenizer, no raw string may hold it.
    """
    if not is_writable(tool_format, arguments):
        return False
    form = tool_format.arguments
    if not isinstance(form, TaggedArguments) or form.type_tags is not None:
        return True
    schema = plan.tools[0].schema
    nodes = dict(schema.resolve(schema.root).properties)
    return not any(
        isinstance(value, str) and reads_as_other(schema, nodes[key], value)
        for key, value in arguments.items()
    )


def is_writable(tool_format, arguments):
    """False where a raw string or a key holds the literal that ends it."""
    form = tool_format.arguments
    if not isinstance(form, TaggedArguments):
        return True
    texts = [(value, form.string_end) for value in arguments.values() if isinstance(value, str)]
    texts += [(key, form.key_close.strip()[0]) for key in arguments if is_text(form.key_close)]
    return not any((text + end).find(end) < len(text) for text, end in texts)


def is_text(literal):
    """True where the tokenizer has no control token for a format's literal."""
    return wire.MARKS.encode(literal) == literal


def reads_as_other(schema, node, text):
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return not isinstance(value, str) and matches(schema, node, value)


@PROFILE
@given(TOOL_FORMATS, st.data())
def test_valid_arguments_pass_the_grammar_and_come_back_equal(tool_format, data):
    schema = data.draw(TOOL_SCHEMAS, label="schema")
    arguments = data.draw(instances(schema), label="arguments")
    plan = plan_for(schema)
    assume(is_representable(tool_format, plan, arguments))
    text = wire.write(tool_format, [("f", arguments)])
    grammar = wire.grammar_of(plan, tool_format)

    accepted = wire.accepts(wire.matcher(grammar.ebnf), text)
    read = wire.read(plan, tool_format, text, grammar.exact_tools)

    assert accepted, f"the grammar refuses {text!r}"
    assert read.fault is None
    assert [name for name, _ in read.calls] == ["f"]
    assert wire.same_json(json.loads(read.calls[0][1]), arguments)
    assert read.content == ""
    assert read.finish == "tool_calls"


@PROFILE
@given(TOOL_FORMATS, st.data())
def test_invalid_arguments_are_refused_by_the_grammar_and_never_leave(tool_format, data):
    schema = data.draw(TOOL_SCHEMAS, label="schema")
    arguments = data.draw(wrong_arguments(schema), label="arguments")
    assume(not is_valid(schema, arguments))
    plan = plan_for(schema)
    assume(is_writable(tool_format, arguments))
    text = wire.write(tool_format, [("f", arguments)])
    grammar = wire.grammar_of(plan, tool_format)

    accepted = wire.accepts(wire.matcher(grammar.ebnf), text)
    read = wire.read(plan, tool_format, text, frozenset())

    if read.fault is None:
        # Raw text has no type: "5" may be the 5 that was asked for.
        left = json.loads(read.calls[0][1])
        assert is_valid(schema, left)
        assert isinstance(tool_format.arguments, TaggedArguments)
    elif "f" in grammar.exact_tools:
        assert not accepted, f"the grammar accepts {text!r}, the guard says {read.fault}"


def wrong_arguments(schema):
    """Arguments of a neighbouring schema: a key more or less, another value, another schema."""
    valid = instances(schema)
    anything = st.one_of(LITTLE_TEXT, st.integers(-999, 999), st.booleans(), st.none())
    keys = st.sampled_from([*schema["properties"], "unknown"])
    return st.one_of(
        st.builds(lambda value, key, other: {**value, key: other}, valid, keys, anything),
        st.builds(
            lambda value, key: {name: part for name, part in value.items() if name != key},
            valid,
            keys,
        ),
        TOOL_SCHEMAS.flatmap(instances),
    )


@PROFILE
@given(st.data())
def test_a_structured_answer_is_accepted_exactly_when_it_is_valid(data):
    source = data.draw(SCHEMAS, label="schema")
    value = data.draw(st.one_of(instances(source), SCHEMAS.flatmap(instances)), label="instance")
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    schema = normalise(source, is_closed=False)
    plan = OutputPlan(structure=Structure("json", schema=schema))

    accepted = wire.accepts(wire.matcher(wire.grammar_of(plan, None).ebnf), text)
    fault = Guard(plan).check_content(text)

    if is_valid(source, value) and not has_whole_fraction(value):
        assert accepted, f"the grammar refuses {text}"
        assert fault is None
    if not is_valid(source, value):
        assert fault is not None
        assert not accepted or schema.unenforced


def has_whole_fraction(value):
    """True where 5.0 stands somewhere: a number to JSON Schema, not an integer on the wire."""
    if isinstance(value, dict):
        return any(has_whole_fraction(part) for part in value.values())
    if isinstance(value, list):
        return any(has_whole_fraction(part) for part in value)
    return isinstance(value, float) and value.is_integer()


@PROFILE
@given(
    st.sampled_from(["glm47", "glm45", "hermes"]).map(FORMATS.__getitem__),
    st.lists(st.one_of(st.sampled_from(SPELT_TAGS), LITTLE_TEXT), max_size=6).map("".join),
)
def test_strings_that_spell_tags_in_text_tokens_survive(tool_format, text):
    plan = plan_for({"type": "object", "properties": {"t": {"type": "string"}}})
    # The format's own tags are control tokens; those in the value are text.
    place = "\ue000"
    is_raw = isinstance(tool_format.arguments, TaggedArguments)
    value = text if is_raw else json.dumps(text, ensure_ascii=False)[1:-1]
    written = wire.write(tool_format, [("f", {"t": place})]).replace(place, value)
    grammar = wire.grammar_of(plan, tool_format)

    accepted = wire.accepts(wire.matcher(grammar.ebnf), written)
    read = wire.read(plan, tool_format, written, grammar.exact_tools)

    assert accepted
    assert [json.loads(arguments) for _, arguments in read.calls] == [{"t": text}]
