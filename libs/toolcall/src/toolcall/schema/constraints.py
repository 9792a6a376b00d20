"""The keywords of plain schemas that hold together, intersected type by type.

Each function takes the schemas of one alternative and gives the node of one type. What it cannot
carry it reports as a note and leaves wider.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Literal

from toolcall.schema.dialects import exact
from toolcall.schema.nodes import Array, Integer, Node, Nothing, Number, Object, String
from toolcall.schema.patterns import search
from toolcall.schema.plain import Plain
from toolcall.schema.references import Document, Place
from toolcall.schema.string_formats import FORMATS

Note = Callable[[Plain, str, str], None]
Child = Callable[[Sequence[Place]], Node]
Closing = Literal["as written", "listed", "sealed"]

GUARD_ONLY = "the grammar leaves it to the check of the finished call"
ARRAY_GAPS = ("contains", "unevaluatedItems")
OBJECT_GAPS = (
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "patternProperties",
    "propertyNames",
)
STRING_REMARKS = ("contentEncoding", "contentMediaType", "contentSchema")
MOST_COMPARED = 20_000
"""Names of one object times the schemas and patterns that they are held against: 0.1 s, and what
the searches for the patterns spend."""
LATE_NAMES = (
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "patternProperties",
    "then",
)
"""Keywords that may speak of names which `properties` does not list."""


def number_node(plains: Sequence[Plain], note: Note) -> Node:
    """Any number within the bounds."""
    for plain in plains:
        if "multipleOf" in plain.facts:
            note(plain, "multipleOf", GUARD_ONLY)
    low, is_low_exclusive = _tightest(plains, "minimum", "exclusiveMinimum", max, decimal)
    high, is_high_exclusive = _tightest(plains, "maximum", "exclusiveMaximum", min, decimal)
    if low is not None and high is not None:
        is_point_excluded = is_low_exclusive or is_high_exclusive
        if low > high or (low == high and is_point_excluded):
            return Nothing()
    return Number(low, high, is_low_exclusive, is_high_exclusive)


def integer_node(plains: Sequence[Plain]) -> Node:
    """Integers within the bounds: fractional bounds are rounded inwards, all steps hold at once.

    A float is its own value here, not the shorter number that is written: integers beyond 2**53
    are compared with that.
    """
    low, is_low_exclusive = _tightest(plains, "minimum", "exclusiveMinimum", max, Decimal)
    high, is_high_exclusive = _tightest(plains, "maximum", "exclusiveMaximum", min, Decimal)
    minimum = None if low is None else math.ceil(low)
    maximum = None if high is None else math.floor(high)
    if minimum is not None and minimum == low and is_low_exclusive:
        minimum += 1
    if maximum is not None and maximum == high and is_high_exclusive:
        maximum -= 1
    steps = [plain.facts["multipleOf"] for plain in plains if "multipleOf" in plain.facts]
    # The integers among the multiples of p/q, in lowest terms, are the multiples of p.
    step = math.lcm(*(exact(each).numerator for each in steps)) if steps else None
    if minimum is not None and maximum is not None:
        first = minimum if step is None else -(-minimum // step) * step
        if first > maximum:
            return Nothing()
    return Integer(minimum, maximum, step)


def string_node(plains: Sequence[Plain], note: Note) -> Node:
    """Strings of these lengths; of several patterns or formats the first is kept."""
    minimum, maximum = _sizes(plains, "minLength", "maxLength")
    kept: dict[str, str] = {}
    for plain in plains:
        for keyword in ("pattern", "format"):
            value = plain.facts.get(keyword)
            if value is None or (keyword == "format" and value not in FORMATS):
                continue
            if kept.setdefault(keyword, value) != value:
                note(plain, keyword, f"two of them hold at once; the grammar keeps {kept[keyword]}")
        for keyword in STRING_REMARKS:
            if keyword in plain.place.schema:
                note(plain, keyword, "a remark about the string that nothing checks")
    if maximum is not None and minimum > maximum:
        return Nothing()
    return String(minimum, maximum, kept.get("pattern"), kept.get("format"))


def array_node(plains: Sequence[Plain], document: Document, child: Child, note: Note) -> Node:
    """Arrays whose items satisfy what each schema says of their place."""
    minimum, maximum = _sizes(plains, "minItems", "maxItems")
    for plain in plains:
        for keyword in ARRAY_GAPS:
            if keyword in plain.facts:
                note(plain, keyword, GUARD_ONLY)
        if plain.facts.get("uniqueItems") is True and maximum not in (0, 1):
            note(plain, "uniqueItems", GUARD_ONLY)
    layouts = [_layout(plain, document) for plain in plains]
    length = max((len(prefix) for prefix, _ in layouts), default=0)
    if maximum is not None:
        length = min(length, maximum)
    prefix = tuple(child(_at(layouts, index)) for index in range(length))
    items = child([rest for _, rest in layouts if rest is not None])
    if maximum is not None and minimum > maximum:
        return Nothing()
    return Array(prefix, items, minimum, maximum)


def object_node(
    plains: Sequence[Plain],
    document: Document,
    child: Child,
    note: Note,
    closing: Closing,
    whole: Place | None,
) -> Node:
    """Objects whose properties satisfy what each schema says of their name.

    `closing`: "listed" closes an object that lists properties and speaks of no others; "sealed"
    closes any that speaks of no others (an `unevaluatedProperties: false` over all the schemas).
    `whole` is the schema that all of them are parts of, if there is one.
    """
    minimum, maximum = _sizes(plains, "minProperties", "maxProperties")
    names = list(dict.fromkeys(name for plain in plains for name in _properties(plain)))
    required = frozenset(name for plain in plains for name in plain.facts.get("required", ()))
    is_shut = closing != "as written" and not _speaks_of_others(plains)
    if is_shut and closing == "listed":
        is_shut = bool(names) and minimum <= len(required.union(names))
        names += sorted(required.difference(names)) if is_shut else []
    for plain in plains:
        for keyword in OBJECT_GAPS:
            if plain.facts.get(keyword) not in (None, {}, True):
                note(plain, keyword, GUARD_ONLY)
        is_whole = whole is not None and plain.place.key == whole.key
        is_kept = is_shut and _speak_of_all(plains if is_whole else [plain], names)
        if plain.facts.get("unevaluatedProperties", True) not in (True, {}) and not is_kept:
            note(plain, "unevaluatedProperties", GUARD_ONLY)
    patterns = sum(len(plain.facts.get("patternProperties", ())) for plain in plains)
    is_small = len(names) * (len(plains) + patterns) <= MOST_COMPARED
    if not is_small:
        note(plains[0], "properties", f"more than {MOST_COMPARED} pairs of names and schemas")
    properties = tuple(
        (
            name,
            child(
                list(_of(plains, name, document) if is_small else _named(plains, name, document))
            ),
        )
        for name in names
    )
    additional = Nothing() if is_shut else child(list(_of(plains, None, document)))
    if maximum is not None and max(minimum, len(required)) > maximum:
        return Nothing()
    return Object(properties, required, additional, minimum, maximum)


def _tightest(
    plains: Sequence[Plain],
    inclusive: str,
    exclusive: str,
    tightest: Callable[..., tuple[Decimal, bool]],
    read: Callable[[int | float], Decimal],
) -> tuple[Decimal | None, bool]:
    """The bound of all schemas, and whether it is exclusive."""
    bounds: list[tuple[Decimal, bool]] = []
    for plain in plains:
        if inclusive in plain.facts:
            is_exclusive = plain.place.schema.get(exclusive) is True
            bounds.append((read(plain.facts[inclusive]), is_exclusive))
        if exclusive in plain.facts:
            bounds.append((read(plain.facts[exclusive]), True))
    if not bounds:
        return None, False
    value, _ = tightest(bounds)
    return value, any(is_exclusive for bound, is_exclusive in bounds if bound == value)


def decimal(value: int | float) -> Decimal:
    """The number that is written."""
    return Decimal(value) if isinstance(value, int) else Decimal(repr(value))


def _sizes(plains: Sequence[Plain], lower: str, upper: str) -> tuple[int, int | None]:
    minimum = max((int(plain.facts.get(lower, 0)) for plain in plains), default=0)
    uppers = [int(plain.facts[upper]) for plain in plains if upper in plain.facts]
    return minimum, min(uppers, default=None)


def _layout(plain: Plain, document: Document) -> tuple[list[Place], Place | None]:
    """What one schema says of the first items, and of the rest."""
    facts, place = plain.facts, plain.place
    keyword, rest = "prefixItems", "items"
    if isinstance(facts.get("items"), list):
        keyword, rest = "items", "additionalItems"
    prefix = [
        document.below(place, f"{keyword}[{index}]", each)
        for index, each in enumerate(facts.get(keyword, ()))
    ]
    return prefix, document.below(place, rest, facts[rest]) if rest in facts else None


def _at(layouts: Sequence[tuple[list[Place], Place | None]], index: int) -> list[Place]:
    found = [prefix[index] if index < len(prefix) else rest for prefix, rest in layouts]
    return [place for place in found if place is not None]


def _properties(plain: Plain) -> dict[str, Any]:
    properties: dict[str, Any] = plain.facts.get("properties", {})
    return properties


def _speaks_of_others(plains: Sequence[Plain]) -> bool:
    return any(
        keyword in plain.facts
        for plain in plains
        for keyword in ("additionalProperties", *LATE_NAMES)
    ) or any(plain.facts.get("unevaluatedProperties", False) is not False for plain in plains)


def _speak_of_all(plains: Sequence[Plain], names: Sequence[str]) -> bool:
    spoken_of = {name for plain in plains for name in _properties(plain)}
    return spoken_of.issuperset(names)


def _named(plains: Sequence[Plain], name: str, document: Document) -> Iterator[Place]:
    """What the schemas say of a property under its own name."""
    for plain in plains:
        properties = _properties(plain)
        if name in properties:
            yield document.below(plain.place, f"properties.{name}", properties[name])


def _of(plains: Sequence[Plain], name: str | None, document: Document) -> Iterator[Place]:
    """What the schemas say of a property, or (None) of one that no schema names."""
    for plain in plains:
        facts, place = plain.facts, plain.place
        patterns = facts.get("patternProperties", {})
        said = [] if name is None else list(_named([plain], name, document))
        said += [
            document.below(place, f"patternProperties.{pattern}", schema)
            for pattern, schema in patterns.items()
            if name is not None and search(pattern, name, document.work)
        ]
        yield from said
        is_other = not said and (name is not None or not patterns)
        if is_other and "additionalProperties" in facts:
            yield document.below(place, "additionalProperties", facts["additionalProperties"])
