"""Client schemas in normal form: one small tree, whatever the schema was written with.

Soundness: the tree accepts all that the client's schema accepts, but for two things that are
documented: an integer is written as one (no 5.0, no 1e2), and with `is_closed` an object that
lists its properties has no others. It may accept more; then `unenforced` says where and why.

Every set of schemas that one value must satisfy becomes a definition of its own, computed once, so
recursion ends and work is bounded; definitions used in one place only are put there at the end
(`schema/tree.py`).
"""

from collections.abc import Sequence
from typing import Any

from toolcall.schema.alternatives import Spreader
from toolcall.schema.constraints import (
    Closing,
    array_node,
    integer_node,
    number_node,
    object_node,
    string_node,
)
from toolcall.schema.nodes import (
    Anything,
    Boolean,
    Enum,
    Node,
    Nothing,
    Null,
    Ref,
    Schema,
    Unenforced,
)
from toolcall.schema.plain import (
    ARRAY,
    BOOLEAN,
    FRACTION,
    INTEGER,
    NULL,
    OBJECT,
    STRING,
    Alternative,
    Plain,
    constants,
)
from toolcall.schema.references import Document, Place
from toolcall.schema.tree import assemble, union
from toolcall.schema.values import text_of, type_of

MOST_DEFINITIONS = 10_000
"""Sets of schemas that hold for one value somewhere: as many as MOST_VALUES of check.py allows a
schema to have, so that only products of recursive schemas are cut."""
MOST_TRIED = 1_000
"""Constants of one enum that are tried on the other keywords, at up to a millisecond each."""
FOLLOWED = 6
"""Steps (schema/work.py) of seeing what a schema stands for."""
PLAIN_ENUM = frozenset(("$ref", "allOf", "anyOf", "const", "enum", "oneOf", "type"))
"""Keywords beside which constants are right when their types are: alternatives spell them out."""


def normalise(source: object, *, is_closed: bool = False) -> Schema:
    """The normal form of a client's schema that passed `check_schema`.

    `is_closed`: objects with `properties` and without a word on others are closed.
    """
    return Normaliser(Document(source), is_closed=is_closed).schema()


class Normaliser:
    """One document, normalised as it is made."""

    def __init__(self, document: Document, *, is_closed: bool) -> None:
        self._document = document
        self._closing: Closing = "listed" if is_closed else "as written"
        self._spreader = Spreader(document)
        self._names: dict[frozenset[int], str] = {}
        self._waiting: list[tuple[str, list[Place]]] = []
        self._notes: dict[tuple[str, str], Unenforced] = {}
        self.places: dict[str, Place] = {}
        """Where each definition was first needed in the client's schema."""
        self.definitions: dict[str, Node] = {}
        """Each definition as it was computed, before the impossible ones are taken out."""
        self.root = self._expand()
        """A Ref to one of the definitions, or a trivial node."""

    def schema(self) -> Schema:
        """The whole document in normal form."""
        root, definitions = assemble(self.root, self.definitions)
        return Schema(root, definitions, tuple(self._notes.values()), self._document.source)

    def _expand(self) -> Node:
        root = self._child([self._document.root])
        while self._waiting:
            name, places = self._waiting.pop()
            self.definitions[name] = self._node(places)
        return root

    def _child(self, places: Sequence[Place]) -> Node:
        """The node of a value that these schemas hold for, for now as a Ref."""
        binding = self._binding(places)
        if any(place.schema is False for place in binding):
            return Nothing()
        if not binding:
            return Anything()
        key = frozenset(place.key for place in binding)
        if key not in self._names:
            if len(self._names) >= MOST_DEFINITIONS:
                reason = f"more than {MOST_DEFINITIONS} combinations of schemas"
                self._note(Unenforced(binding[0].path, "$ref", reason))
                return Anything()
            name = self._free_name(binding)
            self._names[key] = name
            self.places[name] = places[0]
            self._waiting.append((name, binding))
        return Ref(self._names[key])

    def _binding(self, places: Sequence[Place]) -> list[Place]:
        """The places that say something, bare references and bare allOfs followed."""
        found: list[Place] = []
        seen: set[int] = set()
        waiting = list(reversed(places))
        while waiting:
            self._document.work.spend(FOLLOWED)
            place = waiting.pop()
            if place.schema in (True, {}) or place.key in seen:
                continue
            seen.add(place.key)
            followed = self._spreader.followed(place)
            if followed is None:
                found.append(place)
            else:
                waiting += reversed(followed)
        return found

    def _free_name(self, places: Sequence[Place]) -> str:
        name = "&".join(place.path or "#" for place in places[:2])
        return name if name not in self.places else f"{name}~{len(self.places)}"

    def _node(self, places: Sequence[Place]) -> Node:
        alternatives = self._spreader.of(places)
        options: list[Node] = []
        for alternative in alternatives:
            is_sealed = len(alternatives) == len(places) == 1 and self._seals(places[0])
            options += self._options(alternative, places, is_sealed=is_sealed)
        return union(options)

    def _seals(self, place: Place) -> bool:
        keyword = "unevaluatedProperties"
        return keyword in self._document.dialect.keywords and place.schema.get(keyword) is False

    def _options(
        self, alternative: Alternative, places: Sequence[Place], *, is_sealed: bool
    ) -> list[Node]:
        """The nodes of one alternative, one a type."""
        self._document.work.spend(alternative.reading)
        values = constants(alternative)
        if values is not None:
            kept = self._valid(values, alternative, places)
            return [Enum(tuple(dict.fromkeys(map(text_of, kept))))] if kept else []
        for note in alternative.notes:
            self._note(note)
        if not any(plain.facts for plain in alternative.plains):
            return [Anything()]
        for plain in alternative.plains:
            self._note_conditions(plain)
        whole = places[0] if len(places) == 1 else None
        containers = self._containers(alternative, whole, is_sealed=is_sealed)
        return [*self._scalars(alternative), *containers]

    def _scalars(self, alternative: Alternative) -> list[Node]:
        types, plains = alternative.types, alternative.plains
        nodes: list[Node] = []
        if NULL in types:
            nodes.append(Null())
        if BOOLEAN in types:
            nodes.append(Boolean())
        if FRACTION in types:
            nodes.append(number_node(plains, self._note_keyword))
        elif INTEGER in types:
            nodes.append(integer_node(plains))
        if STRING in types:
            nodes.append(string_node(plains, self._note_keyword))
        return nodes

    def _containers(
        self, alternative: Alternative, whole: Place | None, *, is_sealed: bool
    ) -> list[Node]:
        types, plains = alternative.types, alternative.plains
        note, document = self._note_keyword, self._document
        nodes: list[Node] = []
        if ARRAY in types:
            nodes.append(array_node(plains, document, self._child, note))
        if OBJECT in types:
            closing: Closing = "sealed" if is_sealed else self._closing
            if alternative.is_partial:
                closing = "as written"
            nodes.append(object_node(plains, document, self._child, note, closing, whole))
        return nodes

    def _valid(
        self, values: Sequence[Any], alternative: Alternative, places: Sequence[Place]
    ) -> list[Any]:
        """The constants that the whole of the schemas allows, which makes them exact."""
        is_whole = not alternative.notes and not alternative.is_partial
        are_types_all = is_whole and all(
            plain.facts.keys() <= PLAIN_ENUM for plain in alternative.plains
        )
        kept: list[Any] = []
        tried = 0
        for at, value in enumerate(values):
            if are_types_all and type_of(value) in alternative.types:
                kept.append(value)
                continue
            tried += 1
            if tried > MOST_TRIED:
                self._note(Unenforced(places[0].path, "enum", f"more than {MOST_TRIED} constants"))
                return [*kept, *values[at:]]
            kept += self._valid_forms(value, places)
        return kept

    def _valid_forms(self, value: Any, places: Sequence[Place]) -> list[Any]:
        for form in _forms(value):
            if all(self._document.is_valid(place, form) for place in places):
                return [form]
        return []

    def _note_conditions(self, plain: Plain) -> None:
        if plain.facts.get("not", False) not in (False, True, {}):
            self._note_keyword(plain, "not", "a grammar cannot say what a value is not")
        if "if" in plain.facts and ("then" in plain.facts or "else" in plain.facts):
            self._note_keyword(plain, "if", "the grammar allows what either branch allows")

    def _note_keyword(self, plain: Plain, keyword: str, reason: str) -> None:
        self._note(Unenforced(plain.place.path, keyword, reason))

    def _note(self, note: Unenforced) -> None:
        self._notes.setdefault((note.path, note.keyword), note)


def _forms(value: Any) -> list[Any]:
    """A constant as it is written; an integral 5.0 also as the integer it is equal to."""
    if isinstance(value, float) and value.is_integer():
        return [value, int(value)]
    return [value]
