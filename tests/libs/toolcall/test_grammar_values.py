"""What values a grammar lets a model write, schema by schema, in GLM's format and in JSON.

PROBES and ROOTS hold 201 wire texts that JSON Schema allows or not; a grammar that cannot say
something is listed in LEFT_TO_THE_GUARD or REFUSED_BY_DESIGN with exactly those texts.
"""

import json

import pytest

from tests.libs.toolcall.matching import MARKS, NO_MARKS, accepts, is_begun
from toolcall.errors import InvalidToolRequest
from toolcall.formats.render import render_calls
from toolcall.formats.table import FORMATS, GLM_47, HERMES, QWEN_CODER
from toolcall.grammar.build import build
from toolcall.plan import OutputPlan, Structure
from toolcall.requests import plan_output
from toolcall.schema.normalise import normalise

INT, STR, NULL, BOOL = ({"type": kind} for kind in ("integer", "string", "null", "boolean"))
UUID = "123e4567-e89b-12d3-a456-426614174000"
SPELT_TAGS = ["<arg_key>x", "<tool_call>", "a</tool_call>b", "a</think>b", "</arg_value>"]


def obj(properties, required=None, **extra):
    """An object schema."""
    return {"type": "object", "properties": properties, "required": required or [], **extra}


def call(name, *arguments):
    """A call in GLM-4.7's form, its values as they stand on the wire."""
    pairs = "".join(
        f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>" for key, value in arguments
    )
    return f"<tool_call>{name}{pairs}</tool_call>"


def newline_call(name, *arguments):
    """The same in GLM-4.5's form."""
    pairs = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in arguments
    )
    return f"<tool_call>{name}\n{pairs}</tool_call>"


def grammar_of(parameters, format=GLM_47, marks=MARKS, choice="required"):
    """The grammar of a call, by default a required one, of `f` with these parameters."""
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    plan = plan_output(
        tools=[tool], tool_choice=choice, parallel_tool_calls=True, response_format=None
    )
    return build(plan, format, marks, "after_reasoning")


# Name, schema of the one argument `x`, values to accept, values to refuse.
PROBES = [
    ("integer", INT, ["5", "-3", "0"], ["5.5", "five", '"5"', "05", "true", ""]),
    ("integer 1..10", INT | {"minimum": 1, "maximum": 10}, ["1", "10"], ["0", "11", "-1"]),
    ("integer > 0", INT | {"exclusiveMinimum": 0}, ["1"], ["0"]),
    ("multipleOf 5", INT | {"multipleOf": 5}, ["10"], ["7"]),
    (
        "number 0..1",
        {"type": "number", "minimum": 0, "maximum": 1},
        ["0.5", "1", "0"],
        ["1.5", "-0.1"],
    ),
    ("number", {"type": "number"}, ["1e3", "-2.5"], ["NaN", "Infinity", "abc"]),
    ("boolean", BOOL, ["true", "false"], ["True", "1", "yes", '"true"']),
    ("null", NULL, ["null"], ["None", ""]),
    ("enum", STR | {"enum": ["a", "b c"]}, ["a", "b c"], ["c", '"a"', "A"]),
    ("enum, mixed", {"enum": ["a", 1, True, None]}, ["a", "1", "true", "null"], ['"a"', "2"]),
    ("const", {"const": "on"}, ["on"], ["off", '"on"']),
    (
        "string",
        STR,
        ['if (a<b) &lt; "q" {x}\nnew\tline é 日本 🙂', "", " lead/trail ", "<div></div>"],
        ["</arg_value>"],
    ),
    ("string, control tags", STR, [], SPELT_TAGS[:4]),
    ("length 3..5", STR | {"minLength": 3, "maxLength": 5}, ["abc", "日本語"], ["ab", "abcdef"]),
    ("pattern", STR | {"pattern": "^[A-Z]{3}$"}, ["ABC"], ["abc", "ABCD", '"ABC"']),
    ("date", STR | {"format": "date"}, ["2024-01-31"], ["tomorrow"]),
    ("email", STR | {"format": "email"}, ["a@b.co"], ["nope"]),
    ("uuid", STR | {"format": "uuid"}, [UUID], ["nope"]),
    ("[integer,null]", {"type": ["integer", "null"]}, ["5", "null"], ["abc", ""]),
    ("anyOf[integer,null]", {"anyOf": [INT, NULL]}, ["5", "null"], ["abc"]),
    ("nullable:true", INT | {"nullable": True}, ["5", "null"], ["abc"]),
    ("nullable enum", {"type": ["string", "null"], "enum": ["a", None]}, ["a", "null"], ["c"]),
    (
        "object",
        obj({"a": INT, "b": STR}, ["a"], additionalProperties=False),
        ['{"a":1}', '{"a": 1, "b": "a<b"}'],
        ['{"a":"1"}', "{}", '{"a":1,"c":2}'],
    ),
    ("object, other key order", obj({"a": INT, "b": STR}, ["a"]), ['{"b":"x","a":1}'], []),
    ("object, open by default", obj({"a": INT}, ["a"]), ['{"a":1}', '{"a":1,"c":2}'], []),
    ("object, free", {"type": "object"}, ["{}", '{"k":[1,{"z":null}]}'], ["[]", "x"]),
    (
        "object, required without properties",
        {"type": "object", "required": ["a"]},
        ['{"a":1}'],
        ["{}"],
    ),
    (
        "array",
        {"type": "array", "items": INT, "minItems": 1, "maxItems": 2},
        ["[1]", "[1, 2]"],
        ["[]", "[1,2,3]", '["1"]', "1"],
    ),
    ("array, unique", {"type": "array", "items": INT, "uniqueItems": True}, ["[1,2]"], ["[1,1]"]),
    ("array of enum", {"type": "array", "items": {"enum": ["a", "b"]}}, ['["a"]'], ['["c"]', "a"]),
    (
        "tuple",
        {"type": "array", "prefixItems": [INT, STR], "items": False},
        ['[1,"a"]'],
        ['["a",1]', '[1,"a",2]'],
    ),
    ("oneOf, overlapping", {"oneOf": [INT, INT | {"minimum": 10}]}, ["5"], ["15"]),
    ("not", {"not": STR}, ["5"], ["abc"]),
    (
        "allOf, two branches",
        {"allOf": [INT | {"minimum": 1}, INT | {"maximum": 5}]},
        ["3"],
        ["9", "0"],
    ),
    (
        "if/then",
        obj(
            {"k": STR}, **{"if": {"properties": {"k": {"const": "a"}}}, "then": {"required": ["v"]}}
        ),
        ['{"k":"b"}'],
        ['{"k":"a"}'],
    ),
]

NODE = obj(
    {"v": INT, "next": {"anyOf": [{"$ref": "#/$defs/Node"}, NULL]}},
    ["v"],
    additionalProperties=False,
)
THREE = obj({"a": INT, "b": STR, "c": BOOL}, ["a", "c"], additionalProperties=False)
# Name, parameters, answers to accept, answers to refuse.
ROOTS = [
    (
        "names",
        obj({"city": STR}, ["city"]),
        [call("f", ("city", "P")), call("f", ("city", "P")) * 2, newline_call("f", ("city", "P"))],
        [
            call("g", ("city", "P")),
            call("f"),
            call("f", ("city", "P"), ("city", "Q")),
            "hello",
            call("f", ("city", "P")) + " done",
        ],
    ),
    (
        "key order, optional",
        THREE,
        [call("f", ("a", "1"), ("c", "true")), call("f", ("c", "true"), ("a", "1"))],
        [call("f", ("a", "1")), call("f", ("a", "1"), ("b", "x"))],
    ),
    (
        "$ref recursion",
        obj({"n": {"$ref": "#/$defs/Node"}}, ["n"], **{"$defs": {"Node": NODE}}),
        [call("f", ("n", '{"v":1,"next":{"v":2,"next":null}}'))],
        [call("f", ("n", '{"v":1,"next":{"v":"2"}}'))],
    ),
    (
        "$ref sibling",
        obj({"c": {"$ref": "#/$defs/I", "minimum": 5}}, ["c"], **{"$defs": {"I": INT}}),
        [call("f", ("c", "7"))],
        [call("f", ("c", "3"))],
    ),
    (
        "$ref #",
        obj({"v": INT, "child": {"$ref": "#"}}, ["v"]),
        [call("f", ("v", "1"), ("child", '{"v":2}'))],
        [call("f", ("v", "1"), ("child", '{"v":"x"}'))],
    ),
    (
        "$ref to a property",
        obj({"a": INT, "b": {"$ref": "#/properties/a"}}, ["b"]),
        [call("f", ("b", "1"))],
        [call("f", ("b", "x"))],
    ),
    (
        "$ref with ~1",
        obj({"b": {"$ref": "#/$defs/a~1b"}}, ["b"], **{"$defs": {"a/b": INT}}),
        [call("f", ("b", "4"))],
        [call("f", ("b", "x"))],
    ),
    (
        "root $ref",
        {"$ref": "#/$defs/R", "$defs": {"R": obj({"a": INT}, ["a"])}, "type": "object"},
        [call("f", ("a", "1"))],
        [call("f", ("a", "x"))],
    ),
    (
        "root anyOf",
        {"type": "object", "anyOf": [obj({"a": INT}, ["a"]), obj({"b": STR}, ["b"])]},
        [call("f", ("a", "1")), call("f", ("b", "z"))],
        [call("f", ("a", "x"))],
    ),
    (
        "root anyOf of required",
        obj({"a": INT, "b": STR}, anyOf=[{"required": ["a"]}, {"required": ["b"]}]),
        [call("f", ("a", "1"))],
        [call("f"), call("f", ("a", "x"))],
    ),
    (
        "root allOf",
        {"type": "object", "allOf": [obj({"a": INT}, ["a"]), obj({"b": STR}, ["b"])]},
        [call("f", ("a", "1"), ("b", "z"))],
        [call("f", ("a", "1"))],
    ),
    ("no properties", obj({}), [call("f")], [call("f", ("q", "1"))]),
    (
        "additionalProperties:true",
        obj({"a": INT}, ["a"], additionalProperties=True),
        [call("f", ("a", "1"), ("z", "anything"))],
        [call("f", ("a", "x"))],
    ),
]
ALL = ROOTS + [
    (
        name,
        obj({"x": schema}, ["x"]),
        [call("f", ("x", value)) for value in good],
        [call("f", ("x", value)) for value in bad],
    )
    for name, schema, good, bad in PROBES
]
X = ("<tool_call>f<arg_key>x</arg_key><arg_value>", "</arg_value></tool_call>")
LEFT_TO_THE_GUARD = {
    "array, unique": {"[1,1]".join(X)},
    "oneOf, overlapping": {"15".join(X)},
    "not": {"abc".join(X)},
    "if/then": {'{"k":"a"}'.join(X)},
}
REFUSED_BY_DESIGN = {
    # An object that lists its properties is closed at every level of a tool's arguments.
    "object, open by default": {'{"a":1,"c":2}'.join(X)},
}


def test_the_table_has_all_probes():
    assert sum(len(good) + len(bad) for _, _, good, bad in ALL) == 160


@pytest.mark.parametrize(("name", "parameters", "good", "bad"), ALL, ids=[row[0] for row in ALL])
def test_a_grammar_accepts_what_the_schema_allows_and_nothing_else(name, parameters, good, bad):
    grammar = grammar_of(parameters)

    accepted = {text for text in [*good, *bad] if accepts(grammar.ebnf, MARKS.encode(text))}

    assert accepted - set(good) == set(LEFT_TO_THE_GUARD.get(name, ()))
    assert set(good) - accepted == set(REFUSED_BY_DESIGN.get(name, ()))
    assert name not in LEFT_TO_THE_GUARD or not grammar.exact_tools


# ---- Raw strings --------------------------------------------------------------------------------


@pytest.mark.parametrize("spelt", [*SPELT_TAGS, "<|user|>", "</arg_value></tool_call>"])
def test_a_string_may_spell_tags_in_plain_text(spelt):
    ebnf = grammar_of(obj({"x": STR}, ["x"])).ebnf
    opening, closing = map(MARKS.encode, X)

    assert accepts(ebnf, f"{opening}a {spelt} b{closing}")
    assert not accepts(ebnf, f"{opening}a {MARKS.encode(spelt)} b{closing}")


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (STR | {"minLength": 1}, ["a", "\n", "日"], [""]),
        (STR | {"maxLength": 0}, [""], ["a"]),
        (STR | {"minLength": 2}, ["ab", "🙂🙂", "a" * 50], ["a", "🙂", ""]),
        (STR | {"maxLength": 8}, ["", "日本語日本語日本", "x" * 8], ["x" * 9, "日" * 9]),
        (STR | {"maxLength": 200}, ["", "日" * 200, "ab " * 66], ["x" * 201, "日" * 201]),
        (STR | {"pattern": "^[a-z]{2,40}$"}, ["ab", "a" * 40], ["a", "a" * 41, "aB"]),
        (STR | {"pattern": "b"}, ["b", "abc", "\nb\n"], ["", "ac"]),
        (STR | {"pattern": "^[a-z]+$", "maxLength": 4}, ["abcd"], ["abcde", "", "A"]),
        (STR | {"format": "ipv4"}, ["10.0.0.255"], ["10.0.0.256", "1.2.3"]),
        (STR | {"format": "date-time"}, ["2024-01-31T10:00:00Z"], ["2024-01-31", "2024-01-31T10"]),
        ({"enum": ["<b>", "a\nb", 'q"', "é"]}, ["<b>", "a\nb", 'q"', "é"], ["e", "a", "\\u00e9"]),
        ({"type": ["string", "integer"]}, ["5", "five", "", '"5"'], []),
        ({"type": ["boolean", "object"]}, ["true", "{}"], ["", "[]", "True", "null"]),
        ({"anyOf": [{"enum": ["on"]}, INT]}, ["on", "3"], ["off", '"on"', "3.5"]),
        ({}, ["", "anything <b>", "{", "null"], []),
        ({"const": {"k": [1, "a"]}}, ['{"k": [1, "a"]}', '{"k":[1,"a"]}'], ['{"k": [1]}', "k"]),
        ({"enum": [1.0, 2.5]}, ["1.0", "1", "2.5"], ["2", "1.5"]),
        (
            {"enum": [0.00001, 1e23]},
            ["0.00001", "1e-05", "1e+23"],
            ["0.0000", "1e-5", "1" + "0" * 23],
        ),
    ],
)
def test_a_raw_value_is_held_to_its_schema(schema, good, bad):
    grammar = grammar_of(obj({"x": schema}, ["x"]))

    assert [v for v in good if not accepts(grammar.ebnf, MARKS.encode(v.join(X)))] == []
    assert [v for v in bad if accepts(grammar.ebnf, MARKS.encode(v.join(X)))] == []


@pytest.mark.parametrize(
    "schema",
    [
        STR | {"minLength": 20},
        STR | {"pattern": "^[a-z ]{1,63}-[a-z ]{1,63}$"},
        STR | {"pattern": "a.*b", "maxLength": 9},
        STR | {"pattern": "(?=a)b"},
        STR | {"pattern": r"^\w+$"},
        INT | {"multipleOf": 77},
        {"type": "number", "exclusiveMinimum": 0.1},
        {"type": "array", "items": INT, "maxItems": 5000},
        {"type": "array", "items": INT, "uniqueItems": True},
        {"type": "object"},
        {"type": ["string", "integer"]},
        {"anyOf": [STR, {"enum": [5, {"k": 1}]}]},
        {},
    ],
)
def test_a_tool_is_not_exact_where_the_grammar_accepts_more_than_the_schema(schema):
    grammar = grammar_of(obj({"x": schema}, ["x"]))

    assert grammar.exact_tools == frozenset()
    assert any(note.startswith("f: ") for note in grammar.notes)


@pytest.mark.parametrize(
    "schema",
    [
        STR,
        STR | {"minLength": 1, "maxLength": 8},
        STR | {"maxLength": 10_000},
        STR | {"pattern": "^[A-Z]{3}-[0-9]+$"},
        STR | {"pattern": "^[a-z][a-z0-9-]*$", "maxLength": 63},
        STR | {"format": "email"},
        {"enum": ["a", 1, None]},
        {"anyOf": [STR, {"enum": [5, True]}]},
        {"type": ["string", "null"]},
        INT | {"minimum": 0, "maximum": 100, "multipleOf": 5},
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1.5},
        {"type": "array", "items": obj({"a": STR, "b": BOOL}, ["a"]), "maxItems": 5},
    ],
)
def test_a_tool_is_exact_where_all_that_the_grammar_accepts_validates(schema):
    assert grammar_of(obj({"x": schema}, ["x"])).exact_tools == {"f"}


# ---- Text instead of tokens ---------------------------------------------------------------------


def test_a_string_ends_at_the_first_closing_tag_where_tags_are_text():
    ebnf = grammar_of(obj({"x": STR, "y": INT}, ["x"]), marks=NO_MARKS).ebnf

    assert accepts(ebnf, "a < b </arg_valu </b".join(X))
    assert not accepts(ebnf, call("f", ("x", "a"), ("y", "b")))
    assert not accepts(ebnf, "a</arg_value>b".join(X))


def qwen_value(ebnf, value):
    """Whether the one argument `x` of a call in Qwen's format may have this raw value."""
    text = render_calls(QWEN_CODER, [("f", {"x": "VALUE"})])
    return accepts(ebnf, MARKS.encode(text).replace("VALUE", value))


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("^(<|>|=)$", ["<", ">"], ["<<", "a"]),
        ("^.{1,100}$", ["a<b", "</parameter>", "<" * 100], ["", "a\nb", "<" * 101]),
        ("^<[a-z]+>$", ["<b>"], ["b", "<>"]),
        (
            "^SELECT ",
            ["SELECT * WHERE a < 3", "SELECT *\nFROM b"],
            ["select <", "SELECT 1\n</parameter>\n<parameter=y>\n2", "SELECT 1\n</parameter>"],
        ),
    ],
)
def test_a_pattern_may_have_the_characters_of_a_closing_tag_that_is_text(pattern, good, bad):
    grammar = grammar_of(obj({"x": STR | {"pattern": pattern}}, ["x"]), QWEN_CODER)

    assert [v for v in good if not qwen_value(grammar.ebnf, v)] == []
    assert [v for v in bad if qwen_value(grammar.ebnf, v)] == []
    assert grammar.exact_tools == {"f"}


def test_where_all_tags_are_text_a_pattern_goes_without_one_character_of_the_closing_tag():
    ebnf = grammar_of(obj({"x": STR | {"pattern": "^a.*b$"}}, ["x"]), marks=NO_MARKS).ebnf

    assert all(accepts(ebnf, value.join(X)) for value in ["a < b", "a / b", "ab"])
    assert not accepts(ebnf, "a</arg_value>b".join(X))


@pytest.mark.parametrize(
    ("row", "marks", "name"),
    [
        (QWEN_CODER, MARKS, "a>b"),
        (GLM_47, NO_MARKS, "a</arg_key>b"),
        (FORMATS["deepseek_v32"], MARKS, 'a" string="true">b'),
    ],
)
def test_a_name_that_a_reader_would_end_early_cannot_be_written(row, marks, name):
    schema = obj({"a": INT, name: INT}, additionalProperties=False)
    ebnf = grammar_of(schema, row, marks).ebnf

    def is_accepted(arguments):
        return accepts(ebnf, marks.encode(render_calls(row, [("f", arguments)])))

    assert is_accepted({"a": 1})
    assert not is_accepted({name: 1})
    for choice in ("required", "auto"):
        with pytest.raises(InvalidToolRequest, match="Rename the argument") as refused:
            grammar_of(schema | {"required": [name]}, row, marks, choice)
        assert refused.value.param == "tools[0].function.parameters"
        assert json.dumps(name) in str(refused.value)
    grammar_of(schema | {"required": [name]}, row, marks, "none")


def test_qwens_text_has_a_greatest_length_though_its_tags_are_text():
    ebnf = grammar_of(obj({"x": STR | {"maxLength": 40}}, ["x"]), QWEN_CODER).ebnf
    opening, closing = (
        MARKS.encode("<tool_call>\n<function=f>\n<parameter=x>\n"),
        "\n</parameter>\n" + MARKS.encode("</function>\n</tool_call>"),
    )

    assert accepts(ebnf, f"{opening}{'a </b>' * 6}{closing}")
    assert not accepts(ebnf, f"{opening}{'a </b>' * 7}{closing}")


def test_an_enumerated_string_that_holds_the_closing_tag_cannot_be_written_as_text():
    ebnf = grammar_of(obj({"x": {"enum": ["a</arg_value>", "b"]}}, ["x"]), marks=NO_MARKS).ebnf

    assert accepts(ebnf, "b".join(X))
    assert not accepts(ebnf, "a</arg_value>".join(X))


# ---- JSON ---------------------------------------------------------------------------------------


def json_call(arguments):
    """A hermes call with these arguments' text."""
    opening, closing = map(MARKS.encode, ("<tool_call>\n", "\n</tool_call>"))
    return f'{opening}{{"name": "f", "arguments": {arguments}}}{closing}'


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (
            STR,
            ['""', '"é 🙂 \\n \\u00e9 \\" </tool_call>"'],
            ["a", '"\n"', r'"\x"', r'"\ud83d"', "5"],
        ),
        (STR | {"maxLength": 2}, [r'"\u00e9\n"', r'"\ud83d\ude42a"'], ['"abc"', r'"\n\n\n"']),
        (STR | {"maxLength": 30}, [f'"{"日" * 30}"', f'"{"x" * 29}\\n"'], [f'"{"x" * 31}"']),
        (STR | {"pattern": "^[a-z]{2,40}$"}, [f'"{"a" * 40}"'], [f'"{"a" * 41}"', '"a"']),
        (STR | {"pattern": '^["a]+$'}, [r'"a\"a"'], ['"""', '"b"']),
        ({"enum": ["é/", 5]}, ['"é/"', r'"\u00e9/"', "5"], ['"e/"', '"5"']),
        (
            {"type": "array", "items": INT, "minItems": 2, "maxItems": 3},
            ["[1,2]", "[1, 2, 3]", "[ 1, 2 ]"],
            ["[1]", "[1,2,3,4]", "[1 ,2]", "[1,2,]", "[1,,2]"],
        ),
        (
            {"type": "array", "prefixItems": [INT, STR], "items": BOOL, "minItems": 1},
            ["[1]", '[1,"a"]', '[1,"a",true,false]'],
            ["[]", "[1,true]", '["a"]'],
        ),
        (
            obj({"a": INT, "b": INT, "c": INT}, ["b"]),
            ['{"b":1}', '{"c": 1, "b": 2, "a": 3}', '{ "b": 1 }'],
            ["{}", '{"a":1}', '{"b":1,"b":2}', '{"b":1,}', '{,"b":1}', '{"b":1 "a":2}', '{"b" :1}'],
        ),
        (
            obj({"a": INT}, additionalProperties=STR),
            ["{}", '{"a":1,"ab":"x","":"y"}', '{"z":"1","a":1}'],
            ['{"a":"1"}', '{"z":1}', '{"a":1,"a":1}'],
        ),
        (
            {"type": "object", "additionalProperties": INT, "minProperties": 1},
            ['{"k":1}', '{"k": 1, "l": 2}'],
            ["{}", '{"k":"1"}'],
        ),
        (
            obj({"a": INT, "b": INT, "c": INT}, minProperties=2, maxProperties=2),
            ['{"a":1,"b":2}', '{"c":1,"a":2}'],
            ["{}", '{"a":1}', '{"a":1,"b":2,"c":3}'],
        ),
    ],
)
def test_a_json_value_is_held_to_its_schema(schema, good, bad):
    ebnf = grammar_of(obj({"x": schema}, ["x"]), HERMES).ebnf

    assert [v for v in good if not accepts(ebnf, json_call(f'{{"x": {v}}}'))] == []
    assert [v for v in bad if accepts(ebnf, json_call(f'{{"x": {v}}}'))] == []


def test_more_keys_than_a_window_keep_their_declared_order_between_windows():
    keys = [f"k{at}" for at in range(24)]
    ebnf = grammar_of(obj(dict.fromkeys(keys, INT), keys), HERMES).ebnf

    def written(order):
        return json_call("{" + ", ".join(f'"{key}": 1' for key in order) + "}")

    assert accepts(ebnf, written(keys))
    assert accepts(ebnf, written([*reversed(keys[:8]), *keys[8:]]))
    assert not accepts(ebnf, written([*keys[12:], *keys[:12]]))
    assert not accepts(ebnf, written([*keys, "k0"]))
    assert not accepts(ebnf, written(keys[1:]))


@pytest.mark.parametrize("row", [HERMES, GLM_47])
@pytest.mark.parametrize("count", [10, 17])
def test_a_least_number_of_keys_holds_for_all_windows_together(row, count):
    names = [f"k{at}" for at in range(count)]
    grammar = grammar_of(
        obj(dict.fromkeys(names, INT), additionalProperties=False, minProperties=1), row
    )

    def is_accepted(*keys):
        text = render_calls(row, [("f", dict.fromkeys(keys, 1))])
        return accepts(grammar.ebnf, MARKS.encode(text))

    assert all(map(is_accepted, names))
    assert is_accepted(names[0], names[-1])
    assert not is_accepted()
    assert grammar.exact_tools == {"f"}


@pytest.mark.parametrize("row", [HERMES, GLM_47, QWEN_CODER])
@pytest.mark.parametrize(
    "names", [["n" * 500], ["a", "n" * 130], [f"name{at}" for at in range(500)]]
)
def test_an_open_object_has_any_other_names_beside_long_or_many_ones(row, names):
    schema = obj(dict.fromkeys(names, INT), additionalProperties=BOOL)

    grammar = grammar_of(schema, row)

    for arguments in ({names[-1]: 1}, {"nn": True, names[0]: 1, "other": False}):
        assert accepts(grammar.ebnf, MARKS.encode(render_calls(row, [("f", arguments)])))
    assert not accepts(grammar.ebnf, MARKS.encode(render_calls(row, [("f", {"other": 1})])))
    assert grammar.exact_tools == frozenset()


def test_other_names_share_what_may_follow_them():
    """Rules that loop had a copy for each of the letters, and xgrammar took ten times as long."""
    names = ["location", "start_date", "unit"]
    letters = sum(map(len, names))

    one = grammar_of(obj({}, additionalProperties=BOOL), HERMES).rules
    three = grammar_of(obj(dict.fromkeys(names, INT), additionalProperties=BOOL), HERMES).rules

    assert three - one < 3 * letters + 40


@pytest.mark.parametrize("bound", [1e23, 1e22, 2.0**63, 10**23])
def test_an_integer_is_held_to_the_value_of_a_bound_not_to_how_it_is_written(bound):
    grammar = grammar_of(obj({"x": INT | {"maximum": bound}}, ["x"]), HERMES)

    assert accepts(grammar.ebnf, json_call(f'{{"x": {int(bound)}}}'))
    assert not accepts(grammar.ebnf, json_call(f'{{"x": {int(bound) + 1}}}'))
    assert grammar.exact_tools == {"f"}


def content_grammar(schema):
    """The grammar of content that a response format describes."""
    plan = OutputPlan(structure=Structure("json", schema=normalise(schema)))
    return build(plan, None, MARKS, "after_reasoning").ebnf


def test_what_the_grammar_of_content_leaves_to_the_guard_is_noted():
    schema = normalise(
        obj({"a": INT | {"minimum": 10, "maximum": 10**5, "multipleOf": 10}, "b": INT})
    )
    plan = OutputPlan(structure=Structure("json", schema=schema))

    grammar = build(plan, None, MARKS, "after_reasoning")

    assert "content: multipleOf" in grammar.notes


def test_structured_content_may_be_set_out_in_lines():
    ebnf = content_grammar(obj({"a": {"type": "array", "items": INT}}, ["a"]))
    value = {"a": [1, 2]}

    for layout in ({}, {"indent": 2}, {"indent": 4}, {"indent": "\t"}, {"separators": (",", ":")}):
        assert accepts(ebnf, json.dumps(value, **layout))
    assert not is_begun(ebnf, '{\n\n"a"')
    assert not is_begun(ebnf, "{" + " " * 40)


def test_structured_content_is_as_open_as_json_schema_says():
    ebnf = content_grammar(obj({"a": INT}, ["a"]))

    assert accepts(ebnf, '{"a": 1, "z": [null]}')
    assert not accepts(ebnf, '{"a": "1"}')
    assert not accepts(ebnf, '{"z": 1}')


def test_recursive_content_has_any_depth():
    ebnf = content_grammar({"$ref": "#/$defs/Node", "$defs": {"Node": NODE}})
    deep = {"v": 0, "next": None}
    for depth in range(1, 30):
        deep = {"next": deep, "v": depth}

    assert accepts(ebnf, json.dumps(deep))
    assert not accepts(ebnf, json.dumps(deep).replace("null", "1"))
