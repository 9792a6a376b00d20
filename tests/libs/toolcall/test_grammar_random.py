"""Random answers and random schemas: what a grammar lets through is valid, and all of it is let."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis_jsonschema import from_schema

from tests.libs.toolcall.answers import plan
from tests.libs.toolcall.matching import MARKS, accepts, written_at_random
from toolcall.events import Finished
from toolcall.formats.render import render_calls
from toolcall.formats.table import FORMATS, GLM_47, HERMES
from toolcall.grammar.build import build
from toolcall.guard import Guard
from toolcall.parser.parser import Parser

STR, INT, BOOL = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}

# ---- Random answers -----------------------------------------------------------------------------

BOUNDED = {
    "type": "object",
    "properties": {
        "name": STR | {"minLength": 1, "maxLength": 12},
        "code": STR | {"pattern": "^[A-Z]{2}-[0-9]{1,3}$"},
        "day": STR | {"format": "date"},
        "n": INT | {"minimum": -5, "maximum": 12},
        "share": {"type": "number", "minimum": 0, "maximum": 1},
        "unit": {"enum": ["m", "ft", None]},
        "spots": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"label": STR | {"maxLength": 8}, "open": BOOL},
                "required": ["label"],
            },
            "maxItems": 2,
        },
    },
    "required": ["name", "spots", "n"],
}


@pytest.mark.engine
@pytest.mark.parametrize("row", [GLM_47, HERMES, FORMATS["kimi_k2"], FORMATS["deepseek_v32"]])
@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_mask_lets_through_is_a_valid_call(row, seed):
    request = plan({"f": BOUNDED, "g": BOUNDED}, tool_choice="required", parallel_tool_calls=False)
    grammar = build(request, row, MARKS, "after_reasoning")
    pick = random.Random(seed)

    text = written_at_random(grammar.ebnf, pick)

    parser = Parser(request, row, MARKS, "after_reasoning", Guard(request), frozenset())
    events = [*parser.push(text), *parser.finish("stop")]
    assert grammar.exact_tools == {"f", "g"}
    assert events[-1] == Finished("tool_calls"), text


# ---- Random schemas -----------------------------------------------------------------------------

SCALARS = st.sampled_from(
    [
        STR,
        STR | {"minLength": 1, "maxLength": 5},
        STR | {"pattern": "^[a-c]{1,4}$"},
        STR | {"format": "date"},
        INT,
        INT | {"minimum": -40, "maximum": 400},
        {"type": "number", "minimum": -2, "exclusiveMaximum": 2.5},
        BOOL,
        {"type": "null"},
        {"enum": ["a", 7, None, "b c", {"k": [1]}]},
        {"type": ["string", "null"]},
    ]
)
NAMES = st.sampled_from(["city", "a.b", "größe", "key with blanks", "$id", "0", "path", "x"])


def objects_of(values):
    """Closed objects over these values."""
    return st.dictionaries(NAMES, values, max_size=4).flatmap(
        lambda properties: st.sets(st.sampled_from(sorted(properties) or ["x"])).map(
            lambda required: {
                "type": "object",
                "properties": properties,
                "required": sorted(required & properties.keys()),
                "additionalProperties": False,
            }
        )
    )


SCHEMAS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        objects_of(inner),
        inner.map(lambda items: {"type": "array", "items": items, "maxItems": 3}),
        st.lists(inner, min_size=2, max_size=2).map(lambda options: {"anyOf": options}),
    ),
    max_leaves=5,
)
PROFILE = settings(
    max_examples=50,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)
TEXT = st.characters(
    max_codepoint=0x2FFFF, exclude_categories=["Cs"], exclude_characters="\4\6\x13\x14\x16\x1d"
)
"""What the small model's tokenizer can write: it lacks some bytes."""
JUNK = st.sampled_from([None, True, 3, -0.5, "junk", [], {}, ["a"], {"k": 1}, 10**6])


def instances(schema):
    """Valid instances. hypothesis-jsonschema 0.23 cannot draw objects with this hypothesis."""
    if "anyOf" in schema:
        return st.one_of([instances(option) for option in schema["anyOf"]])
    match schema.get("type"):
        case [first, second]:
            return st.one_of(instances({"type": first}), instances({"type": second}))
        case "object":
            parts = {name: instances(part) for name, part in schema["properties"].items()}
            required = {name: parts.pop(name) for name in schema["required"]}
            return st.fixed_dictionaries(required, optional=parts)
        case "array":
            return st.lists(instances(schema["items"]), max_size=schema["maxItems"])
        case "number":
            return st.integers(-200, 249).map(lambda hundredths: hundredths / 100)
        case "string" if schema.keys() <= {"type", "minLength", "maxLength"}:
            sizes = {"min_size": schema.get("minLength", 0), "max_size": schema.get("maxLength", 9)}
            return st.text(TEXT, **sizes)
        case _:
            return from_schema(schema)


@PROFILE
@pytest.mark.engine
@given(data=st.data())
@pytest.mark.parametrize("row", [GLM_47, HERMES, FORMATS["deepseek_v32"]])
def test_valid_arguments_of_a_random_schema_are_accepted(row, data):
    schema = data.draw(objects_of(SCHEMAS))
    arguments = data.draw(instances(schema))
    grammar = build(plan({"f": schema}, tool_choice="required"), row, MARKS, "after_reasoning")

    assert accepts(grammar.ebnf, MARKS.encode(render_calls(row, [("f", arguments)])))


@PROFILE
@pytest.mark.engine
@given(data=st.data())
@pytest.mark.parametrize("row", [GLM_47, HERMES, FORMATS["deepseek_v32"]])
def test_all_that_is_accepted_for_an_exact_tool_passes_the_guard(row, data):
    schema = data.draw(objects_of(SCHEMAS))
    request = plan({"f": schema}, tool_choice="required")
    grammar = build(request, row, MARKS, "after_reasoning")
    arguments = data.draw(instances(schema))
    name = data.draw(st.sampled_from([*schema["properties"], "unknown"]))
    if data.draw(st.booleans()):
        arguments.pop(name, None)
    else:
        arguments[name] = data.draw(JUNK)
    text = MARKS.encode(render_calls(row, [("f", arguments)]))
    parser = Parser(request, row, MARKS, "after_reasoning", Guard(request), grammar.exact_tools)

    events = [*parser.push(text), *parser.finish("stop")]

    if grammar.exact_tools and accepts(grammar.ebnf, text):
        assert events[-1] == Finished("tool_calls")
