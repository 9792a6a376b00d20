"""Plain schemas, which hold no combinators, and sets of them that hold together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

from toolcall.schema.nodes import Unenforced
from toolcall.schema.references import Place
from toolcall.schema.values import identity

NULL, BOOLEAN, INTEGER, FRACTION = "null", "boolean", "integer", "fraction"
STRING, ARRAY, OBJECT = "string", "array", "object"
ALL_TYPES = frozenset((NULL, BOOLEAN, INTEGER, FRACTION, STRING, ARRAY, OBJECT))
TYPES = {
    **{name: frozenset((name,)) for name in (NULL, BOOLEAN, INTEGER, STRING, ARRAY, OBJECT)},
    "number": frozenset((INTEGER, FRACTION)),
}
"""A number is an integer or a fraction here, so that types intersect as sets."""


@dataclass(frozen=True, eq=False)
class Plain:
    """A schema without its combinators: `facts` are the keywords of its draft that it holds."""

    place: Place
    facts: Mapping[str, Any]

    @cached_property
    def types(self) -> frozenset[str]:
        """The types that it allows, by `type` alone."""
        names = self.facts.get("type", ())
        if not names and "type" not in self.facts:
            return ALL_TYPES
        names = [names] if isinstance(names, str) else names
        return frozenset().union(*(TYPES[name] for name in names))


CONSTANT, PROPERTY = 12, 20
"""Steps (schema/work.py) of reading a constant, a property of a schema that is used once more."""


@dataclass(frozen=True, eq=False)
class Alternative:
    """Plain schemas that hold together."""

    plains: tuple[Plain, ...] = ()
    notes: tuple[Unenforced, ...] = ()
    is_partial: bool = False
    """True when schemas were left out that hold as well."""

    @cached_property
    def types(self) -> frozenset[str]:
        """The types that all of its schemas allow."""
        return ALL_TYPES.intersection(*(plain.types for plain in self.plains))

    @cached_property
    def key(self) -> frozenset[int]:
        """Equal for the same schemas in whatever order."""
        return frozenset(plain.place.key for plain in self.plains)

    @cached_property
    def reading(self) -> int:
        """The steps of looking through its constants and properties."""
        return sum(
            CONSTANT * len(plain.facts.get("enum", ()))
            + PROPERTY * len(plain.facts.get("properties", ()))
            for plain in self.plains
        )


FREE = Alternative()


def constants(alternative: Alternative) -> list[Any] | None:
    """The values that its `enum`s and `const`s leave, None when there are no such keywords."""
    lists = [
        plain.facts["enum"] if keyword == "enum" else [plain.facts["const"]]
        for plain in alternative.plains
        for keyword in ("enum", "const")
        if keyword in plain.facts
    ]
    if not lists:
        return None
    found: dict[object, Any] = {}
    for value in lists[0]:
        found.setdefault(identity(value), value)
    for each in lists[1:]:
        allowed = {identity(value) for value in each}
        found = {key: value for key, value in found.items() if key in allowed}
    return list(found.values())


MOST_COMPARED = 2_000
"""Pairs of options of one oneOf that are told apart one by one."""


def are_apart(options: Sequence[Sequence[Alternative]]) -> bool:
    """True when no value can be valid by two of the options."""
    if len(options) < 2:
        return True
    spread = [[_Traits.of(alternative) for alternative in option] for option in options]
    if all(traits.values is not None for option in spread for traits in option):
        sets = [frozenset().union(*(each.values or () for each in option)) for option in spread]
        return sum(map(len, sets)) == len(frozenset().union(*sets))
    if sum(map(len, spread)) ** 2 > 2 * MOST_COMPARED:
        return False
    return all(
        one.is_apart(other)
        for first, second in combinations(spread, 2)
        for one in first
        for other in second
    )


@dataclass(frozen=True)
class _Traits:
    """What tells one alternative from others."""

    types: frozenset[str]
    values: frozenset[object] | None
    tags: Mapping[str, frozenset[object]]
    """The constants of required properties."""

    @classmethod
    def of(cls, alternative: Alternative) -> "_Traits":
        values = constants(alternative)
        tags = {}
        for plain in alternative.plains:
            required = plain.facts.get("required", ())
            for name, schema in plain.facts.get("properties", {}).items():
                if name in required and isinstance(schema, Mapping):
                    tags[name] = _constants_of_tag(schema)
        return cls(
            alternative.types,
            None if values is None else _identities(values),
            {name: values for name, values in tags.items() if values},
        )

    def is_apart(self, other: "_Traits") -> bool:
        common = self.types & other.types
        if not common:
            return True
        if self.values is not None and other.values is not None:
            return self.values.isdisjoint(other.values)
        return common == {OBJECT} and any(
            self.tags[name].isdisjoint(other.tags[name]) for name in self.tags.keys() & other.tags
        )


def _constants_of_tag(schema: Mapping[str, Any]) -> frozenset[object]:
    if "$ref" in schema or "nullable" in schema:
        return frozenset()
    if "const" in schema:
        return _identities([schema["const"]])
    return _identities(schema.get("enum", ()))


def _identities(values: Iterable[Any]) -> frozenset[object]:
    return frozenset(identity(value) for value in values)
