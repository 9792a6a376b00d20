"""Arguments between tags: a string is raw text, any other value is JSON."""

import json
from collections.abc import Iterator
from functools import cached_property

from toolcall.formats.table import TaggedArguments
from toolcall.grammar.automata import automaton
from toolcall.grammar.characters import one_of
from toolcall.grammar.complements import other_than
from toolcall.grammar.ebnf import ANY_TEXT, NOTHING, Rules, literal, sequence
from toolcall.grammar.kinds import kinds, roots
from toolcall.grammar.objects import Entry, Frame, Limits, any_order, counts_exactly
from toolcall.grammar.values import Values
from toolcall.grammar.wire import Wire, first_tag
from toolcall.schema.nodes import (
    Anything,
    Array,
    Enum,
    Node,
    Object,
    Ref,
    Schema,
    String,
    Union,
)


class TaggedWriter:
    """The arguments of one format's calls."""

    def __init__(self, rules: Rules, wire: Wire, values: Values, form: TaggedArguments) -> None:
        self._rules, self._wire, self._values = rules, wire, values
        self._key_open = wire.literal(form.key_open)
        before_text, before_json = form.type_tags or (form.key_close, form.key_close)
        self._before_text, self._before_json = wire.literal(before_text), wire.literal(before_json)
        self._is_typed = form.type_tags is not None
        self._string_end = end = form.string_end
        rest = literal(form.value_close[len(end) :]) if form.value_close != end else NOTHING
        after = wire.layout if wire.layout != NOTHING else rest
        self._end = sequence(wire.literal(end), after)
        self._after_text = after
        self._end_text = end if wire.is_text(end) else None
        name_ends = form.type_tags or (first_tag(form.key_close),)
        self._name_ends = [each for each in name_ends if wire.is_text(each)]
        self._key_taboo = one_of(form.key_close[0] + "\n") if wire.is_text(form.key_close) else None
        self._arguments: dict[object, str | None] = {}
        self.unwritable_names: list[str] = []
        """The last tool's required arguments whose names a reader would end early."""

    def arguments(self, schema: Schema, end: str) -> str | None:
        """An expression for all arguments and the end of the call; None when there are none."""
        self.unwritable_names.clear()
        options = [self._of_root(schema, root, end) for root in roots(schema)]
        kept = [option for option in options if option is not None]
        return self._rules.choice(kept) if kept else None

    def any_arguments(self, end: str) -> str:
        """An expression for arguments of any names with any values, and the end of the call."""
        value = self._argument(_NO_SCHEMA, Anything())
        assert value is not None
        pair = self._rules.share(sequence(self._key_open, self._other_key(frozenset()), value))
        return sequence(self._rules.many(pair), end)

    def _of_root(self, schema: Schema, root: Object | Anything, end: str) -> str | None:
        if isinstance(root, Anything):
            return self.any_arguments(end)
        entries = []
        named = dict(root.properties)
        for name in [*named, *sorted(root.required - named.keys())]:
            value = self._argument(schema, named.get(name, root.additional))
            is_whole = all(_ends_at(name, end) for end in self._name_ends)
            if value is not None and is_whole:
                pair = self._rules.share(sequence(self._key_open, literal(name), value))
                entries.append(Entry(pair, name in root.required))
            elif name in root.required:
                if not is_whole:
                    self.unwritable_names.append(name)
                return None
        extra = self._argument(schema, root.additional)
        if extra is not None:
            key = self._other_key(frozenset(named) | root.required)
            extra = self._rules.share(sequence(self._key_open, key, extra))
        window, limits = self._values.window, Limits(root.min_properties, root.max_properties)
        if not counts_exactly(len(entries), window, limits, is_open=extra is not None):
            self._values.inexact[id(root)] = "open object or number of properties"
        return any_order(self._rules, entries, Frame(NOTHING, end, end), window, limits, extra)

    def _other_key(self, names: frozenset[str]) -> str:
        if not names and self._key_taboo is None:
            return ANY_TEXT
        return self._rules.share(
            automaton(self._rules, other_than(names, self._key_taboo), NOTHING)
        )

    def _argument(self, schema: Schema, node: Node) -> str | None:
        """What follows an argument's name: the tags around its value, and the value."""
        if isinstance(node, Union | Array | Object):
            return self._new_argument(schema, node)
        key = (id(schema), node) if isinstance(node, Ref) else node
        if key not in self._arguments:
            self._arguments[key] = self._new_argument(schema, node)
        return self._arguments[key]

    def _new_argument(self, schema: Schema, node: Node) -> str | None:
        options_of_node = list(kinds(schema, node))
        texts = list(self._texts(options_of_node))
        others = [kind for kind in options_of_node if not isinstance(kind, String)]
        is_late = bool(texts) and not self._is_typed and self._end_text is not None
        if is_late and any(isinstance(kind, Object | Array | Anything) for kind in others):
            # A reader looks for the tag before it knows that this is JSON, which may hold the tag.
            self._values.inexact[id(node)] = "text that may also be JSON"
            texts = [self._free_text]
        options = [sequence(self._before_text, text) for text in texts]
        if self._is_typed or not texts or self._free_text not in texts:
            jsons = (self._json(schema, kind) for kind in others)
            options += [sequence(self._before_json, each, self._end) for each in jsons if each]
        return self._rules.share(" | ".join(dict.fromkeys(options))) if options else None

    def _texts(self, options: list[Node]) -> Iterator[str]:
        """The raw texts of these kinds, each with the tag that ends it."""
        strings = self._values.strings
        for kind in options:
            match kind:
                case Anything():
                    yield self._free_text
                case String() if strings.shape(kind, "raw").is_free:
                    yield self._free_text
                case String(pattern=None, format=None) if self._end_text is not None:
                    strings.inexact.setdefault(kind, "the length of text up to a tag")
                    yield self._text_up_to_end(kind.max_length)
                case String():
                    text = strings.raw(kind, self._end, self._end_text)
                    if text is not None:
                        yield text
                case Enum(values):
                    known = [value for value in map(json.loads, values) if isinstance(value, str)]
                    written = [literal(text) for text in known if self._can_be_written(text)]
                    if written:
                        yield sequence(self._rules.choice(written), self._end)

    @cached_property
    def _free_text(self) -> str:
        return self._text_up_to_end()

    def _text_up_to_end(self, most: int | None = None) -> str:
        return sequence(self._wire.text_up_to(self._string_end, most), self._after_text)

    def _json(self, schema: Schema, kind: Node) -> str | None:
        match kind:
            case Anything():
                return self._values.anything_but_strings()
            case Enum(values):
                others = tuple(value for value in values if not value.startswith('"'))
                return self._values.expression(schema, Enum(others)) if others else None
            case _:
                return self._values.expression(schema, kind)

    def _can_be_written(self, text: str) -> bool:
        return self._end_text is None or _ends_at(text, self._end_text)


def _ends_at(text: str, end: str) -> bool:
    """Whether a reader who looks for the end after the text finds it there, and not before."""
    return (text + end).find(end) == len(text)


_NO_SCHEMA = Schema(Anything(), {}, (), True)
