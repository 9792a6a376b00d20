"""Arguments between tags (GLM, Qwen coder, DeepSeek DSML), composed into one JSON object.

A raw string leaves escaped piece by piece, JSON as written, and a value that may be either when it
is whole.
"""

from toolcall.parser.json_text import read_value
from toolcall.parser.prose import Emit
from toolcall.parser.source import END, Reading, Unfinished, stops
from toolcall.parser.tag_reader import TagReader
from toolcall.parser.values import Spelling, argument_node, decide, escape, quote, spelling
from toolcall.schema.nodes import Schema


def read_tagged_arguments(reader: TagReader, schema: Schema, first_tag: str) -> Reading[None]:
    """The arguments and the call's end; `first_tag` came after the name."""
    tags, delivery = reader.tags, reader.delivery
    close = tags.call_close[0]
    names: set[str] = set()
    tag = first_tag
    while tag != close:
        if tag == tags.key_open:
            yield from _read_argument(reader, schema, names)
        tag = yield from reader.tag(stops(tags.key_open, close))
    yield from reader.expect(tags.call_close[1:])
    delivery.arguments("}" if names else "{}")


def _read_argument(reader: TagReader, schema: Schema, names: set[str]) -> Reading[None]:
    tags, delivery, where = reader.tags, reader.delivery, reader.where
    reader.where = f"{where}, in an argument's name"
    name, tag = yield from reader.text_to(stops(*(tags.type_tags or tags.key_close[:1])))
    reader.where = f"{where}, argument {name!r}"
    if not tags.type_tags:
        yield from reader.expect(tags.key_close[1:])
    yield from reader.source.optional(tags.after_key)
    if name in names:
        reader.refuse("invalid_arguments", "it is there twice")
    delivery.arguments(f"{', ' if names else '{'}{quote(name)}: ")
    names.add(name)
    node = argument_node(schema, name)
    match _written_as(reader, tag) or spelling(schema, node):
        case "string":
            yield from _read_string(reader)
        case "json":
            yield from read_value(reader, tags.value_close, delivery.arguments)
        case "either":
            parts: list[str] = []
            yield from _read_raw(reader, parts.append)
            delivery.arguments(decide(schema, node, "".join(parts)))
    reader.where = where


def _written_as(reader: TagReader, tag: str) -> Spelling | None:
    """What a format that types its values (DSML) says of this one."""
    if not reader.tags.type_tags:
        return None
    return "string" if tag == reader.tags.type_tags[0] else "json"


def _read_string(reader: TagReader) -> Reading[None]:
    delivery = reader.delivery
    delivery.arguments('"')
    yield from _read_raw(reader, lambda text: delivery.arguments(escape(text)))
    delivery.arguments('"')


def _read_raw(reader: TagReader, emit: Emit) -> Reading[None]:
    """A raw value and the literal that ends it."""
    end = reader.tags.string_end
    wanted = stops(end)
    while True:
        text, stop = yield from reader.source.read(wanted)
        if stop == END:
            raise Unfinished(reader.where)
        if text:
            emit(text)
        if stop == end:
            return
        if stop is not None:
            emit(reader.spell_in_value(stop))
