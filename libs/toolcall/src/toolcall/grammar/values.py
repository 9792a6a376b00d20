"""JSON values: a rule for every node of a normalised schema.

Blanks in JSON are at most what writers put there, so that a model cannot write them for ever: none
before a colon or a comma, one after a colon, and between brackets, commas and what they hold
nothing, one blank or, in structured content, a line feed with up to 16 blanks or 8 tabs.
"""

import json
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal

from toolcall.grammar.automata import automaton, in_json
from toolcall.grammar.complements import other_than
from toolcall.grammar.ebnf import NOTHING, Rules, literal, sequence
from toolcall.grammar.kinds import constant
from toolcall.grammar.multiples import multiples
from toolcall.grammar.numbers import NUMBER, integers, numbers
from toolcall.grammar.objects import Entry, Frame, Limits, any_order, counts_exactly
from toolcall.grammar.regular import Regular
from toolcall.grammar.strings import Strings, json_text
from toolcall.schema.nodes import (
    Anything,
    Array,
    Boolean,
    Enum,
    Integer,
    Node,
    Null,
    Number,
    Object,
    Ref,
    Schema,
    String,
    Union,
)

MOST_ITEMS = 1000
"""A longer count of items is left to the guard."""
_VALUE_STARTS = '(= [\\"\\[\\]{}0-9tfn\\-])'
"""Told to xgrammar as what follows blanks; it then rules most tokens out while it compiles."""
_BLANKS = {
    "tight": ["", " "],
    "pretty": [
        "",
        " ",
        *("\n" + " " * n for n in range(17)),
        *("\n" + "\t" * n for n in range(1, 9)),
    ],
}

NEVER = literal("\ue000 no such value")
"""The body of a definition that no value satisfies; normalised schemas do not refer to one."""

Spacing = Literal["tight", "pretty"]


class Values:
    """The JSON values of one grammar."""

    def __init__(self, rules: Rules, strings: Strings, spacing: Spacing, window: int) -> None:
        self.rules, self.strings, self.window = rules, strings, window
        self.inexact: dict[int, str] = {}
        """Nodes, by identity, of which the grammar accepts too much, with the reason."""
        self._spacing: Spacing = spacing
        self._leaves: dict[Node, str | None] = {}
        self._refs: dict[tuple[int, str], str] = {}
        self._steps_left_out: set[Node] = set()
        self._free: str | None = None
        self._free_object: str | None = None

    # Rules that a grammar does not use would be compiled all the same.

    @cached_property
    def gap(self) -> str:
        """An expression for the blanks beside brackets and after commas."""
        return self._blanks(self._spacing)

    @cached_property
    def comma(self) -> str:
        """An expression for a comma between values."""
        return sequence(literal(","), self.gap)

    @cached_property
    def closed(self) -> str:
        """An expression for the end of an object that has members."""
        return self.rules.share(sequence(self.gap, literal("}")))

    @cached_property
    def _colon(self) -> str:
        return sequence(literal(":"), self._blanks("tight"))

    @cached_property
    def _list_end(self) -> str:
        return self.rules.share(sequence(self.gap, literal("]")))

    @cached_property
    def _object_frame(self) -> Frame:
        return Frame(self.comma, self.closed, literal("}"))

    def _blanks(self, spacing: Spacing) -> str:
        return self.rules.share(f"{' | '.join(map(literal, _BLANKS[spacing]))} {_VALUE_STARTS}")

    def expression(self, schema: Schema, node: Node) -> str | None:
        """An expression for the node's values, None when it has none."""
        match node:
            case Ref(name):
                return self._ref(schema, name)
            case Union(options):
                found = [self.expression(schema, option) for option in options]
                kept = [each for each in found if each is not None]
                return self.rules.choice(kept) if kept else None
            case Array():
                return self._array(schema, node)
            case Object():
                return self._object(schema, node)
            case _:
                if node not in self._leaves:
                    self._leaves[node] = self._leaf(schema, node)
                if node in self._steps_left_out:
                    self.inexact[id(node)] = "multipleOf"
                return self._leaves[node]

    def anything(self) -> str:
        """An expression for any JSON value."""
        if self._free is None:
            self._free = self.rules.reserve()
            pair = self._pair(self.strings.any_json(), self._free)
            members = any_order(self.rules, (), self._object_frame, 1, extra=pair)
            assert members is not None
            self._free_object = self.rules.share(sequence(literal("{"), self.gap, members))
            options = (*self._free_values(), self.strings.any_json())
            self.rules.define(self._free, " | ".join(options))
        return self._free

    def anything_but_strings(self) -> str:
        """An expression for any JSON value that is not a string."""
        self.anything()
        return self.rules.choice(self._free_values())

    def any_object(self) -> str:
        """An expression for any JSON object."""
        self.anything()
        assert self._free_object is not None
        return self._free_object

    def _free_values(self) -> list[str]:
        assert self._free is not None
        assert self._free_object is not None
        rest = self.rules.choice(
            (
                literal("]"),
                sequence(self._free, self._repeated(self._free, 0, None), self._list_end),
            )
        )
        items = self.rules.share(sequence(literal("["), self.gap, rest))
        number = self._written(NUMBER)
        return [self._free_object, items, number, *map(literal, ("true", "false", "null"))]

    def pair(self, name: str, value: str) -> str:
        """An expression for a member of an object."""
        return self._pair(json_text(self.rules, name), value)

    def opened(self, name: str) -> str:
        """An expression for the beginning of an object, up to the value of its first member."""
        return sequence(literal("{"), self.gap, json_text(self.rules, name), self._colon)

    def _pair(self, name: str, value: str) -> str:
        return self.rules.share(sequence(name, self._colon, value))

    def _ref(self, schema: Schema, name: str) -> str:
        """The rule of a definition; reserved first, because it may refer to itself."""
        key = (id(schema), name)
        if key not in self._refs:
            self._refs[key] = rule = self.rules.reserve()
            body = self.expression(schema, schema.definitions[name])
            self.rules.define(rule, body if body is not None else NEVER)
        return self._refs[key]

    def _leaf(self, schema: Schema, node: Node) -> str | None:
        rules = self.rules
        match node:
            case Anything():
                return self.anything()
            case Null():
                return literal("null")
            case Boolean():
                return rules.choice((literal("true"), literal("false")))
            case Integer(low, high, step):
                found = multiples(rules, node) if step not in (None, 1) else None
                tree = None if found is not None else integers(low, high)
                if found is None and step not in (None, 1):
                    self._steps_left_out.add(node)
                return found or (self._written(tree) if tree else None)
            case Number():
                tree = numbers(node)
                return self._written(tree) if tree else None
            case String():
                return self.strings.json(node)
            case Enum(values):
                options = [self._constant(schema, json.loads(text)) for text in values]
                kept = [each for each in options if each is not None]
                return rules.choice(kept) if kept else None
            case _:
                return None

    def _written(self, tree: Regular) -> str:
        """A rule of its own, so that its masks are made once wherever it stands."""
        return self.rules.share(automaton(self.rules, tree, NOTHING))

    def _constant(self, schema: Schema, value: Any) -> str | None:
        match value:
            case str():
                return json_text(self.rules, value)
            case dict() | list():
                return self.expression(schema, constant(value))
            case float():
                plain = int(value) if value.is_integer() else f"{Decimal(repr(value)):f}"
                return self.rules.choice(map(literal, (json.dumps(value), str(plain))))
            case _:
                return literal(json.dumps(value))

    def _array(self, schema: Schema, node: Array) -> str | None:
        prefix = [self.expression(schema, each) for each in node.prefix]
        least, most = node.min_items, node.max_items
        item = self.expression(schema, node.items) if most is None or most > len(prefix) else None
        if not prefix and item is not None:
            prefix = [item]  # the first item has no comma before it
        reach = prefix.index(None) if None in prefix else len(prefix)
        if reach < len(prefix) or item is None:
            most = reach if most is None else min(most, reach)
        if most is not None and most < least:
            return None
        if max(least, most or 0) > MOST_ITEMS:
            self.inexact[id(node)] = f"more than {MOST_ITEMS} items"
            least = min(least, MOST_ITEMS)
            most = None if most is None or most > MOST_ITEMS else most
        rest = self._list_end
        if item is not None and (most is None or most > len(prefix)):
            count = len(prefix)
            upper = None if most is None else most - count
            rest = sequence(self._repeated(item, max(0, least - count), upper), self._list_end)
        for place in range(len(prefix) - 1, 0, -1):
            each = prefix[place]
            options = [self._list_end] if place >= least else []
            if each is not None and (most is None or place < most):
                options.append(sequence(self.comma, each, rest))
            rest = self.rules.choice(options)
        options = [literal("]")] if least == 0 else []
        if prefix and prefix[0] is not None and most != 0:
            options.append(sequence(prefix[0], rest))
        return self.rules.share(sequence(literal("["), self.gap, self.rules.choice(options)))

    def _repeated(self, item: str, least: int, most: int | None) -> str:
        """Further items, each after a comma."""
        more = self.rules.share(sequence(self.comma, item))
        match least, most:
            case 0, None:
                return self.rules.many(more)
            case 0, 1:
                return self.rules.optional(more)
            case _:
                return f"{more}{{{least},{'' if most is None else most}}}"

    def _object(self, schema: Schema, node: Object) -> str | None:
        entries = []
        named = dict(node.properties)
        for name in [*named, *sorted(node.required - named.keys())]:
            value = self.expression(schema, named.get(name, node.additional))
            if value is not None:
                entries.append(Entry(self.pair(name, value), name in node.required))
            elif name in node.required:
                return None
        extra = self._extra(schema, node)
        limits = Limits(node.min_properties, node.max_properties)
        if not counts_exactly(len(entries), self.window, limits, is_open=extra is not None):
            self.inexact[id(node)] = "open object or number of properties"
        found = any_order(self.rules, entries, self._object_frame, self.window, limits, extra)
        return found and self.rules.share(sequence(literal("{"), self.gap, found))

    def _extra(self, schema: Schema, node: Object) -> str | None:
        """An expression for a member with another name, None for a closed object."""
        value = self.expression(schema, node.additional)
        if value is None:
            return None
        names = frozenset(name for name, _ in node.properties) | node.required
        other = in_json(other_than(names)) if names else None
        key = self.strings.any_json() if other is None else self.strings.quoted(other)
        return self._pair(key, value)
