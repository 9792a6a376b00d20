"""What a schema says of one value, spread out: allOf, anyOf, oneOf and references become a choice
between sets of plain schemas that hold together.

Soundness: whatever is valid by the schemas is valid by at least one alternative. A product of
choices that grows too large is cut by leaving schemas out, which only widens; the alternative then
carries a note.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from toolcall.schema.nodes import Unenforced
from toolcall.schema.plain import FREE, Alternative, Plain, are_apart
from toolcall.schema.references import REFERENCES, Document, Place

MOST_COMBINED = 64
"""Alternatives of a product (allOf of anyOf). Far above what people write; each becomes a grammar
rule, and a product of products would grow without end."""
MOST_OPTIONS = 2_000
"""Alternatives in all: unions of constants may be long."""
MOST_WORK = 40_000
"""Schemas placed in unions and products over one document: about a second of CPU."""
PLACED = 6
"""Steps (schema/work.py) of placing a schema in a product."""
MOST_PAIRS = 1_000_000
"""Pairs in products over one document, also of schemas that allow no type in common: 0.2 s."""
MOST_STEPS = 50
"""References and combinators in a row, which recurse here: a fifth of Python's own limit."""


class Spreader:
    """Spreads out the schemas of one document, each once."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._known: dict[int, list[Alternative]] = {}
        self._followed: dict[int, list[Place] | None] = {}
        self._open: set[int] = set()
        self._work = 0
        self._pairs = 0
        self._null = Plain(Place({"type": "null"}, document.root.resolver, ""), {"type": "null"})

    def of(self, places: Sequence[Place]) -> list[Alternative]:
        """The alternatives of a value that all of these schemas hold for."""
        return self._all_of(
            [self._spread(place) for place in places], places[0] if places else None
        )

    def followed(self, place: Place) -> list[Place] | None:
        """What a schema stands for that only refers, None when it says something itself."""
        if place.key not in self._followed:
            self._followed[place.key] = self._follow(place)
        return self._followed[place.key]

    def _follow(self, place: Place) -> list[Place] | None:
        schema, dialect = place.schema, self._document.dialect
        if isinstance(schema, bool) or schema.get("nullable") is True:
            return None
        said = schema.keys() & dialect.keywords
        if "$ref" in schema and (not dialect.merges_ref_siblings or said == {"$ref"}):
            return [self._document.target(place, schema["$ref"])]
        if said == {"allOf"}:
            return self._options(place, schema, "allOf")
        return None

    def _spread(self, place: Place) -> list[Alternative]:
        if isinstance(place.schema, bool):
            return [FREE] if place.schema else []
        if place.key in self._known:
            return self._known[place.key]
        if place.key in self._open or len(self._open) >= MOST_STEPS:
            reason = f"it refers to itself, or there are more than {MOST_STEPS} steps in a row"
            return [_widened(FREE, place, "$ref", reason)]
        self._open.add(place.key)
        found = self._spread_schema(place, place.schema)
        self._open.discard(place.key)
        self._known[place.key] = found
        return found

    def _spread_schema(self, place: Place, schema: Mapping[str, Any]) -> list[Alternative]:
        dialect = self._document.dialect
        if "$ref" in schema and not dialect.merges_ref_siblings:
            found = self._spread(self._document.target(place, schema["$ref"]))
            return self._or_null(found, schema)
        facts = {key: value for key, value in schema.items() if key in dialect.keywords}
        parts = [[Alternative((Plain(place, facts),))]]
        for keyword in REFERENCES:
            if keyword in facts:
                parts.append(self._referred(place, keyword, facts[keyword]))
        parts += [self._spread(each) for each in self._options(place, facts, "allOf")]
        if "anyOf" in facts:
            options = [self._spread(each) for each in self._options(place, facts, "anyOf")]
            parts.append(self._any_of(options, place, "anyOf"))
        if "oneOf" in facts:
            options = [self._spread(each) for each in self._options(place, facts, "oneOf")]
            parts.append(self._one_of(options, place))
        if facts.get("not") is True or facts.get("not") == {}:
            parts.append([])
        return self._or_null(self._all_of(parts, place), schema)

    def _or_null(self, found: list[Alternative], schema: Mapping[str, Any]) -> list[Alternative]:
        if schema.get("nullable") is not True:
            return found
        return [*found, Alternative((self._null,))]

    def _options(self, place: Place, facts: Mapping[str, Any], keyword: str) -> list[Place]:
        return [
            self._document.below(place, f"{keyword}[{index}]", each)
            for index, each in enumerate(facts.get(keyword, ()))
        ]

    def _referred(self, place: Place, keyword: str, reference: str) -> list[Alternative]:
        if keyword != "$ref" and not self._document.is_one_resource:
            return [_widened(FREE, place, keyword, "its target depends on where it is used from")]
        return self._spread(self._document.target(place, reference))

    def _any_of(
        self, options: Sequence[list[Alternative]], place: Place, keyword: str
    ) -> list[Alternative]:
        self._work += sum(map(len, options))
        found: dict[frozenset[int], Alternative] = {}
        if self._work <= MOST_WORK:
            for alternative in chain.from_iterable(options):
                found.setdefault(alternative.key, alternative)
        if self._work > MOST_WORK or len(found) > MOST_OPTIONS:
            return [_widened(FREE, place, keyword, f"more than {MOST_OPTIONS} options in all")]
        return list(found.values())

    def _one_of(self, options: Sequence[list[Alternative]], place: Place) -> list[Alternative]:
        found = self._any_of(options, place, "oneOf")
        is_widened = len(found) == 1 and found[0].is_partial
        if not is_widened:
            readings = (each.reading for each in chain.from_iterable(options))
            self._document.work.spend(sum(readings))
        if is_widened or are_apart(options):
            return found
        reason = "its options may overlap: the grammar allows any of them"
        return [_noted(each, place, "oneOf", reason) for each in found]

    def _all_of(self, parts: Sequence[list[Alternative]], place: Place | None) -> list[Alternative]:
        # The smallest choices first: then the product is cut, if at all, where it costs most.
        product = [FREE]
        left_out = False
        for part in sorted(parts, key=len):
            larger = self._times(product, part)
            if larger is None:
                left_out = True
            else:
                product = larger
        if left_out and place is not None:
            reason = f"more than {MOST_COMBINED} combinations, or too many schemas in all"
            return [_widened(each, place, "allOf", reason) for each in product]
        return product

    def _times(
        self, first: list[Alternative], second: list[Alternative]
    ) -> list[Alternative] | None:
        """Every pair that allows a type in common; None when there are too many."""
        if first == [FREE]:
            return second
        self._pairs += len(first) * len(second)
        if self._pairs > MOST_PAIRS:
            return None
        found: dict[frozenset[int], Alternative] = {}
        for one in first:
            for other in second:
                if not one.types & other.types:
                    continue
                both = _both(one, other)
                self._work += len(both.plains)
                self._document.work.spend(PLACED * len(both.plains))
                found.setdefault(both.key, both)
                is_product = len(first) > 1 and len(second) > 1
                if self._work > MOST_WORK or (is_product and len(found) > MOST_COMBINED):
                    return None
        return list(found.values())


def _both(one: Alternative, other: Alternative) -> Alternative:
    plains = {plain.place.key: plain for plain in (*one.plains, *other.plains)}
    return Alternative(
        tuple(plains.values()),
        (*one.notes, *other.notes),
        one.is_partial or other.is_partial,
    )


def _noted(alternative: Alternative, place: Place, keyword: str, reason: str) -> Alternative:
    note = Unenforced(place.path, keyword, reason)
    return replace(alternative, notes=(*alternative.notes, note))


def _widened(alternative: Alternative, place: Place, keyword: str, reason: str) -> Alternative:
    return replace(_noted(alternative, place, keyword, reason), is_partial=True)
