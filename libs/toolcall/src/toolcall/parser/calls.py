"""Reads one call in any format: its name, its arguments, its end."""

from toolcall.formats.table import JsonArguments, JsonCall, TaggedArguments, WireFormat
from toolcall.parser.delivery import Refused
from toolcall.parser.json_text import read_name, read_object
from toolcall.parser.source import BLANKS, END, Reading, Unfinished, stops
from toolcall.parser.tag_reader import MOST_NAME_CHARACTERS, TagReader
from toolcall.parser.tagged import read_tagged_arguments
from toolcall.parser.tags import Opening


class CallReader:
    """The calls of one answer."""

    def __init__(self, reader: TagReader, format: WireFormat) -> None:
        self._reader, self._format = reader, format
        tags = reader.tags
        after_name = [*tags.name_close[:1]]
        if isinstance(format.arguments, TaggedArguments):
            after_name += [tags.key_open, tags.call_close[0]]
        self._after_name = stops(*after_name)

    def open(self, opening: Opening) -> Reading[None]:
        """What follows an opening's trigger up to the call's name."""
        yield from self._reader.expect(opening.rest)
        if opening.is_section:
            yield from self._reader.expect(self._reader.tags.call_open)

    def begins(self, opening: Opening) -> Reading[bool]:
        """Whether a declared tool's name and a right continuation follow; reads nothing.

        A format without opening tags is known by its shape, so there the name may be any.
        """
        source = self._reader.source
        try:
            with source.lookahead():
                yield from self.open(opening)
                if isinstance(self._format.arguments, JsonCall):
                    return (yield from self._has_json_shape(self._format.arguments))
                name, _ = yield from self._name()
                return self._reader.delivery.is_declared(name)
        except (Refused, Unfinished):
            return False

    def read(self) -> Reading[None]:
        """One call after its opening; when this returns it has left."""
        reader, delivery = self._reader, self._reader.delivery
        reader.where = f"call {delivery.calls}"
        match self._format.arguments:
            case JsonCall() as keys:
                yield from self._json_call(keys)
            case JsonArguments():
                yield from self._named()
                yield from self._json_arguments()
            case TaggedArguments():
                tag = yield from self._named()
                assert delivery.call is not None
                yield from read_tagged_arguments(reader, delivery.call.tool.schema, tag)
        delivery.end_call()

    def skip(self, *, is_section: bool) -> Reading[None]:
        """Reads a call, or a section of them, that must not leave."""
        source, tags = self._reader.source, self._reader.tags
        if not tags.call_close:
            yield from self._reader.expect(("{",))
            yield from read_object(self._reader, lambda _: None)
            return
        ends = tags.section_closes if is_section else tags.call_close[-1:]
        stop: str | None = None
        while stop not in ends and stop != END:
            _, stop = yield from source.read(stops(*ends))

    def _name(self) -> Reading[tuple[str, str]]:
        """The name, without Kimi's number, and the tag after it."""
        name, tag = yield from self._reader.text_to(self._after_name, MOST_NAME_CHARACTERS)
        name = name.strip(BLANKS)
        if self._format.number_open is None:
            return name, tag
        name, found, number = name.rpartition(self._format.number_open)
        if not found or not number.isdecimal():
            self._reader.refuse("malformed_call", "no number after the name")
        return name, tag

    def _named(self) -> Reading[str]:
        """Starts the call by its name; the tag after the name."""
        name, tag = yield from self._name()
        self._start(name)
        return tag

    def _start(self, name: str, *, may_be_live: bool = True) -> None:
        delivery = self._reader.delivery
        words = name.split()
        if not delivery.is_declared(name) and words and delivery.is_declared(words[0]):
            self._reader.refuse("malformed_call", f"text after the name {words[0]!r}")
        delivery.start(name, may_be_live=may_be_live)
        self._reader.where += f" ({name})"

    def _json_arguments(self) -> Reading[None]:
        reader, emit = self._reader, self._reader.delivery.arguments
        tag = yield from reader.tag(stops("{", reader.tags.call_close[0]))
        if tag != "{":
            emit("{}")
            yield from reader.expect(reader.tags.call_close[1:])
            return
        emit(tag)
        yield from read_object(reader, emit)
        yield from reader.expect(reader.tags.call_close)

    def _json_call(self, keys: JsonCall) -> Reading[None]:
        """Arguments that come before the name wait for it."""
        reader, delivery = self._reader, self._reader.delivery
        name: str | None = None
        early: list[str] = []
        is_given = False
        yield from reader.expect(("{",))
        tag = yield from reader.tag(stops('"', "}"))
        while tag == '"':
            key = yield from read_name(reader, MOST_NAME_CHARACTERS)
            yield from reader.expect((":",))
            if key == keys.name_key and name is None:
                yield from reader.expect(('"',))
                name = yield from read_name(reader, MOST_NAME_CHARACTERS)
                self._start(name, may_be_live=not is_given)
            elif key == keys.arguments_key and not is_given:
                is_given = True
                emit = early.append if name is None else delivery.arguments
                yield from reader.expect(("{",))
                emit("{")
                yield from read_object(reader, emit)
            else:
                reader.refuse("malformed_call", f"the key {key!r} of a call")
            tag = yield from reader.tag(stops(",", "}"))
            if tag == ",":
                yield from reader.expect(('"',))
                tag = '"'
        if name is None:
            reader.refuse("malformed_call", "a call without a name")
        delivery.arguments("".join(early) if is_given else "{}")
        yield from reader.expect(reader.tags.call_close)

    def _has_json_shape(self, keys: JsonCall) -> Reading[bool]:
        reader = self._reader
        yield from reader.expect(("{", '"'))
        key = yield from read_name(reader, MOST_NAME_CHARACTERS)
        yield from reader.expect((":",))
        if key == keys.arguments_key:
            yield from reader.expect(("{",))
            return True
        if key != keys.name_key:
            return False
        yield from reader.expect(('"',))
        name = yield from read_name(reader, MOST_NAME_CHARACTERS)
        if (yield from reader.tag(stops(",", "}"))) == "}":
            return reader.delivery.is_declared(name)
        yield from reader.expect(('"',))
        key = yield from read_name(reader, MOST_NAME_CHARACTERS)
        yield from reader.expect((":", "{"))
        is_known = self._format.starts_the_answer or reader.delivery.is_declared(name)
        return is_known and key == keys.arguments_key
