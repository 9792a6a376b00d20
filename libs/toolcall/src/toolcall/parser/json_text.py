"""JSON inside an answer: finds where it ends without parsing it, and passes it on as written.

Only strings, escapes and depth are followed; whether the text is JSON is checked when it is whole.
"""

from toolcall.parser.prose import Emit, Prose
from toolcall.parser.source import BLANKS, END, Reading, Unfinished, stops
from toolcall.parser.tag_reader import TagReader
from toolcall.parser.values import load_json

IN_STRING = stops('"', "\\")
IN_OBJECT = stops('"', "{", "}", "[", "]", ",")


def read_string(reader: TagReader, emit: Emit, most: int | None = None) -> Reading[None]:
    """The rest of a string after its opening quote; `most` bounds a name's length."""
    length = 0
    while True:
        text, stop = yield from reader.source.read(IN_STRING, most)
        if stop == END:
            raise Unfinished(reader.where)
        length += len(text) + len(stop or "")
        if most is not None and length > most:
            reader.refuse("undeclared_tool", "a name without an end")
        emit(text)
        if stop is None:
            continue
        if stop == "\\":
            escaped = yield from reader.source.take()
            emit(stop + reader.spell(escaped))
            continue
        emit(stop if stop == '"' else reader.spell_in_value(stop))
        if stop == '"':
            return


def read_name(reader: TagReader, most: int) -> Reading[str]:
    """A short string after its opening quote, decoded."""
    parts = ['"']
    yield from read_string(reader, parts.append, most)
    try:
        name = load_json("".join(parts))
    except ValueError:
        reader.refuse("malformed_call", "a broken JSON string")
    return str(name)


def read_object(reader: TagReader, emit: Emit) -> Reading[None]:
    """The rest of an object after its opening brace; a key twice in it is refused."""
    depth, is_key, keys = 1, True, set[str]()
    while depth:
        text, stop = yield from reader.source.read(IN_OBJECT)
        if stop == END:
            raise Unfinished(reader.where)
        emit(text)
        match stop:
            case None:
                continue
            case '"':
                if depth == 1 and is_key:
                    emit((yield from _read_key(reader, keys)))
                    is_key = False
                else:
                    emit('"')
                    yield from read_string(reader, emit)
                continue
            case "{" | "[":
                depth += 1
            case "}" | "]":
                depth -= 1
            case ",":
                is_key = is_key or depth == 1
        emit(stop if stop in IN_OBJECT.literals else reader.spell_in_value(stop))


def read_value(reader: TagReader, close: str, emit: Emit) -> Reading[None]:
    """A value up to the tag that closes it (which may be text inside a string); no blanks around.

    Anything that is not one JSON value is refused as soon as it is whole.
    """
    parts: list[str] = []

    def put(text: str) -> None:
        parts.append(text)
        emit(text)

    outside, written = stops('"', close), Prose(put)
    yield from reader.source.blanks()
    while True:
        text, stop = yield from reader.source.read(outside)
        if stop == END:
            raise Unfinished(reader.where)
        written.write(text)
        if stop == '"':
            written.write(stop)
            yield from read_string(reader, put)
        elif stop == close:
            break
        elif stop is not None:
            written.write(reader.spell_in_value(stop))
    _check_json("".join(parts), reader)


def _read_key(reader: TagReader, keys: set[str]) -> Reading[str]:
    """A key as written, after its opening quote."""
    parts = ['"']
    yield from read_string(reader, parts.append)
    text = "".join(parts)
    try:
        key = str(load_json(text))
    except ValueError:
        key = text  # the guard refuses it with the rest
    if key in keys:
        reader.refuse("invalid_arguments", f"the argument {key!r} is there twice")
    keys.add(key)
    return text


def _check_json(text: str, reader: TagReader) -> None:
    try:
        load_json(text)
    except ValueError as error:
        reader.refuse("invalid_arguments", f"{text[:40].strip(BLANKS)!r} is not JSON ({error})")
