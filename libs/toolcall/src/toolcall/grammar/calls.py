"""Tool calls of one format: one, or several with what stands between and around them."""

from collections.abc import Iterable

from toolcall.errors import InvalidToolRequest
from toolcall.formats.table import JsonCall, TaggedArguments, WireFormat
from toolcall.grammar.ebnf import NOTHING, Rules, literal, sequence
from toolcall.grammar.kinds import roots
from toolcall.grammar.strings import json_text
from toolcall.grammar.tagged import TaggedWriter
from toolcall.grammar.values import Values
from toolcall.grammar.wire import BLANKS, Wire
from toolcall.plan import Tool
from toolcall.refusals import refusal, shown
from toolcall.schema.nodes import Anything, Schema

_CALL_NUMBER = '"0" | [1-9] [0-9]{0,4}'


class CallWriter:
    """The calls of one format with one tokenizer."""

    def __init__(self, rules: Rules, wire: Wire, values: Values, format: WireFormat) -> None:
        self._rules, self._wire, self._values, self._format = rules, wire, values, format
        self._end = wire.literal(format.call_close)
        form = format.arguments
        self._tagged = (
            TaggedWriter(rules, wire, values, form) if isinstance(form, TaggedArguments) else None
        )

    def calls(self, tools: Iterable[Tool], *, checks_arguments: bool, is_parallel: bool) -> str:
        """An expression for a call of one of the tools, or for calls.

        Without `checks_arguments`, and for tools that are not strict, arguments are any object.
        Raises InvalidToolRequest for a tool of which no valid call can be written: offered to the
        model, but out of its reach, it would be lost without a word.
        """
        named = []
        for tool in tools:
            call = self._named(tool, is_shaped=checks_arguments and tool.is_strict)
            if call is None:
                raise self._unwritable(tool)
            named.append(call)
        opening, section = self._wire.literal(self._format.call_open), self._format.section_open
        if isinstance(self._format.arguments, JsonCall):
            opening = sequence(opening, self._values.opened(self._format.arguments.name_key))
        calls = call = self._rules.share(sequence(opening, self._rules.choice(named)))
        if is_parallel:
            more = self._rules.share(sequence(self._separator(), call))
            calls = sequence(call, self._rules.many(more))
        section_close = self._wire.literal(self._format.section_close)
        return sequence(self._wire.literal(section), calls, section_close)

    def _separator(self) -> str:
        visible = self._format.separator.strip(BLANKS)
        if visible:  # between JSON objects, so blanks are as free as in JSON
            return sequence(literal(visible), self._values.gap)
        if self._wire.layout != NOTHING:
            return self._wire.layout
        return self._wire.literal(self._format.separator)

    def _named(self, tool: Tool, *, is_shaped: bool) -> str | None:
        """A call from its name on."""
        form, schema = self._format.arguments, tool.schema
        name, name_close = literal(tool.name), self._wire.literal(self._format.name_close)
        if self._tagged is not None:
            arguments = (
                self._tagged.arguments(schema, self._end)
                if is_shaped
                else self._tagged.any_arguments(self._end)
            )
            return arguments and sequence(name, name_close, self._wire.layout, arguments)
        body = self._object(schema) if is_shaped else self._values.any_object()
        if body is None:
            return None
        match form:
            case JsonCall():
                pair = self._values.pair(form.arguments_key, body)
                members = sequence(json_text(self._rules, tool.name), self._values.comma, pair)
                return sequence(members, self._values.closed, self._end)
            case _:
                number = NOTHING
                if self._format.number_open is not None:
                    opening = self._wire.literal(self._format.number_open)
                    number = sequence(opening, self._rules.share(_CALL_NUMBER))
                return sequence(name, number, name_close, body, self._end)

    def _unwritable(self, tool: Tool) -> InvalidToolRequest:
        names = self._tagged.unwritable_names if self._tagged is not None else []
        return refusal(
            f"{tool.param}.parameters",
            f"arguments that can be written in this model's format ({self._format.name})",
            f"a schema that no call of {tool.name} satisfies there",
            f"Rename the argument {shown(names[-1])}: its name would end early." if names else "",
        )

    def _object(self, schema: Schema) -> str | None:
        """The arguments as a JSON object."""
        options = [
            self._values.any_object()
            if isinstance(root, Anything)
            else self._values.expression(schema, root)
            for root in roots(schema)
        ]
        kept = [option for option in options if option is not None]
        return self._rules.choice(kept) if kept else None
