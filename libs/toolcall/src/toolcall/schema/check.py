"""The check of a client's schema: everything that could go wrong later is refused here by path.

A schema that passes is valid in its own draft, refers only to itself, ends every chain of
references, compiles (its expressions), and allows at least one value.
"""

from collections.abc import Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any

from toolcall.json_values import SCHEMA, check_json
from toolcall.refusals import kind, refusal, shown
from toolcall.schema.dialects import URIS, Dialect, UnknownDialect, dialect_of
from toolcall.schema.nodes import Node, Nothing, Object, Ref, Schema, Union
from toolcall.schema.normalise import Normaliser
from toolcall.schema.patterns import fault_of, may_be_slow, reading
from toolcall.schema.positions import subschemas
from toolcall.schema.references import (
    REFERENCES,
    DanglingReference,
    Document,
    Place,
    join,
)
from toolcall.schema.shapes import misshapen
from toolcall.schema.tree import possible
from toolcall.schema.work import TooMuchWork, Work

IN_PLACE = frozenset(
    ("allOf", "anyOf", "dependencies", "dependentSchemas", "else", "if", "not", "oneOf", "then")
)
"""Keywords whose schemas speak of the same value as the one that they stand in."""
MOST_IN_A_ROW = SCHEMA.depth
"""Schemas in a row that speak of the same value: one document may nest as many, and the validator
takes up to five of Python's 1,000 frames for each."""
PAIRS = (
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minContains", "maxContains"),
    ("minProperties", "maxProperties"),
)
EXCLUSIVE_PAIRS = (
    ("minimum", "exclusiveMaximum"),
    ("exclusiveMinimum", "maximum"),
    ("exclusiveMinimum", "exclusiveMaximum"),
)
CLOSING = ("additionalProperties", "unevaluatedProperties")
MOST_IN_PLACE = 10_000
"""Schemas that one value is checked by where none of its items and properties is looked at, each
counted as often as it is reached: some 0.2 s. Written out, no schema has more."""
MOST_LISTED = 10
"""Names that a message lists."""


def check_schema(source: object, param: str) -> None:
    """Raises InvalidToolRequest with the path of the fault, which starts with `param`."""
    checked_schema(source, param)


def checked_schema(
    source: object, param: str, *, is_closed: bool = False, work: Work | None = None
) -> Schema:
    """The normal form of a schema that passes `check_schema`, which it raises as.

    `work`: what the schemas of one request may cost together; this one's own if there is none.
    """
    if not isinstance(source, bool | dict):
        raise refusal(param, "a JSON Schema (an object)", kind(source))
    check_json(source, param)
    try:
        dialect = dialect_of(source)
    except UnknownDialect as error:
        raise refusal(
            join(param, "$schema"),
            f"one of {', '.join(f'https://{each}' for each in URIS)}",
            shown(str(error)),
            "Leave it out for 2020-12.",
        ) from error
    shaped: set[int] = set()
    work = work or Work()
    try:
        _check_shapes(source, dialect, work, param, shaped)
        document = Document(source, dialect, work)
        _References(document, param, shaped).check()
        return _satisfiable(document, param, is_closed=is_closed)
    except TooMuchWork as error:
        raise refusal(
            param,
            "a schema that takes less work to check",
            f"too much ({error})",
            "Refer less often to long definitions; use fewer combinators, constants, expressions.",
        ) from error
    except RecursionError as error:
        raise refusal(
            param, "constants that the schema can be tried on", "ones nested too deeply"
        ) from error


def check_strict(source: object, param: str) -> None:
    """Raises InvalidToolRequest where an object of a schema that passed the check is not closed.

    OpenAI asks this of clients that say `strict: true`; without the word we do not.
    """
    document = Document(source)
    waiting = [document.root]
    seen: set[int] = set()
    while waiting:
        place = waiting.pop()
        schema, path = place.schema, join(param, place.path)
        if not isinstance(schema, Mapping) or place.key in seen or not document.holds(place):
            continue
        seen.add(place.key)
        is_object = "properties" in schema or "object" in _list_of(schema.get("type"))
        if is_object and not any(schema.get(keyword) is False for keyword in CLOSING):
            got = (
                kind(schema["additionalProperties"]) if "additionalProperties" in schema else "none"
            )
            raise refusal(
                join(path, "additionalProperties"),
                "false, which strict: true asks of every object",
                got,
                "Close the object, or leave out strict (schemas are enforced without it).",
            )
        waiting.extend(document.subplaces(place))
        for keyword in REFERENCES:
            if keyword in schema and keyword in document.dialect.keywords:
                waiting.append(document.target(place, schema[keyword]))


def _list_of(names: Any) -> list[Any]:
    return names if isinstance(names, list) else [names]


def _check_shapes(source: Any, dialect: Dialect, work: Work, param: str, shaped: set[int]) -> None:
    """Checks every schema below, but for those in `shaped`, and adds them there."""
    waiting = [(source, param)]
    while waiting:
        schema, path = waiting.pop()
        if not isinstance(schema, Mapping) or id(schema) in shaped:
            continue
        shaped.add(id(schema))
        _read_expressions(schema, work)
        _check_shape(schema, dialect, path)
        inside = [(each, join(path, suffix)) for suffix, each in subschemas(schema)]
        waiting.extend(reversed(inside))


def _read_expressions(schema: Mapping[str, Any], work: Work) -> None:
    """Spends what it takes to read the expressions of one schema, up to the first bad one."""
    named = schema.get("patternProperties")
    for pattern in (schema.get("pattern"), *(named if isinstance(named, Mapping) else ())):
        if isinstance(pattern, str):
            if fault_of(pattern) is not None:
                return
            work.spend(reading(pattern))


def _check_shape(schema: Mapping[str, Any], dialect: Dialect, path: str) -> None:
    for fault in misshapen(schema, dialect):
        raise refusal(join(path, fault.path), fault.expected, fault.got, fault.advice)
    if "$schema" in schema and _draft_of(schema) is not dialect:
        raise refusal(
            join(path, "$schema"),
            "one draft for the whole schema",
            shown(schema["$schema"]),
            "Leave it out below the root.",
        )
    for keyword, reason in _contradictions(schema, dialect):
        raise refusal(join(path, keyword), "something that a value can satisfy", reason)


def _draft_of(schema: Mapping[str, Any]) -> Dialect | None:
    try:
        return dialect_of(schema)
    except UnknownDialect:
        return None


def _contradictions(schema: Mapping[str, Any], dialect: Dialect) -> Iterator[tuple[str, str]]:
    """Keywords of one schema that exclude each other."""
    facts = {key: value for key, value in schema.items() if key in dialect.keywords}
    if "$ref" in facts and not dialect.merges_ref_siblings:
        return
    for lower, upper in PAIRS:
        if lower in facts and upper in facts and facts[lower] > facts[upper]:
            yield lower, f"{facts[lower]} with {upper} {facts[upper]}"
    for lower, upper in EXCLUSIVE_PAIRS:
        if lower in facts and upper in facts and facts[lower] >= facts[upper]:
            yield lower, f"{facts[lower]} with {upper} {facts[upper]}"
    if facts.get("enum") == []:
        yield "enum", "an empty list"


class _References:
    """Follows every reference of a document once."""

    def __init__(self, document: Document, param: str, shaped: set[int]) -> None:
        self._document = document
        self._shaped = shaped
        self._param = param
        self._in_place: dict[int, list[tuple[int, str]]] = {}
        """For each schema those that speak of the same value, with the path that leads there."""

    def check(self) -> None:
        """Raises InvalidToolRequest for a dangling, remote or endless reference, or too many."""
        waiting = [self._document.root]
        places: list[Place] = []
        while waiting:
            place = waiting.pop()
            if isinstance(place.schema, bool) or place.key in self._in_place:
                continue
            self._check_draft(place)
            edges = self._in_place[place.key] = []
            for suffix, each in subschemas(place.schema):
                inner = self._document.below(place, suffix, each)
                waiting.append(inner)
                if self._is_in_place(suffix) and not isinstance(each, bool):
                    edges.append((inner.key, inner.path))
            for keyword in REFERENCES:
                if keyword in place.schema and keyword in self._document.dialect.keywords:
                    target = self._target(place, keyword)
                    edges.append((target.key, join(place.path, keyword)))
                    waiting.append(target)
            places.append(place)
        self._check_ends()
        self._check_counts()
        self._check_names(places)

    def _is_in_place(self, suffix: str) -> bool:
        keyword = suffix.partition(".")[0].partition("[")[0]
        return keyword in IN_PLACE and keyword in self._document.dialect.keywords

    def _check_draft(self, place: Place) -> None:
        """Refuses a keyword that the draft would leave out, unless the client named the draft."""
        dialect = self._document.dialect
        if "$schema" in self._document.source:
            return
        for keyword in dialect.unknown(place.schema):
            raise refusal(
                join(self._param, join(place.path, keyword)),
                "the keywords of one draft",
                f"{keyword}, which {dialect.name} (the draft of the others) does not know",
                'Use its keywords instead, or name the draft that you mean in "$schema".',
            )

    def _target(self, place: Place, keyword: str) -> Place:
        reference = place.schema[keyword]
        path = join(self._param, join(place.path, keyword))
        try:
            target = self._document.target(place, reference)
        except DanglingReference as error:
            if reference.startswith("#"):
                names = ", ".join(self._definitions()) or "none"
                advice = f"Definitions in this schema: {names}."
                expected = "a reference to a place in this schema"
            else:
                advice = 'Copy it under "$defs" and refer to it as "#/$defs/NAME".'
                expected = "a reference inside this schema"
            raise refusal(path, expected, shown(reference), advice) from error
        if not isinstance(target.schema, bool | Mapping):
            raise refusal(path, "a reference to a schema", f"{shown(reference)}, which is none")
        if self._document.holds(target):
            path = join(self._param, target.path)
            document = self._document
            _check_shapes(target.schema, document.dialect, document.work, path, self._shaped)
        return target

    def _definitions(self) -> Iterator[str]:
        for keyword in ("$defs", "definitions"):
            found = self._document.source.get(keyword)
            if isinstance(found, Mapping):  # elsewhere the draft has no such keyword
                yield from (f"#/{keyword}/{name}" for name in list(found)[:MOST_LISTED])

    def _check_counts(self) -> None:
        """Combinators of references to combinators of references multiply."""
        counts: dict[int, int] = {}
        inner = {key: [each for each, _ in edges] for key, edges in self._in_place.items()}
        for key in TopologicalSorter(inner).static_order():
            edges = self._in_place.get(key, [])
            counts[key] = 1 + sum(counts[each] for each, _ in edges)
            if counts[key] > MOST_IN_PLACE:
                raise refusal(
                    join(self._param, max(edges, key=lambda edge: counts[edge[0]])[1]),
                    f"at most {MOST_IN_PLACE:,} schemas for one value",
                    "more, by references to references",
                    "Use fewer combinators of references.",
                )

    def _check_names(self, places: Sequence[Place]) -> None:
        """jsonschema looks for unevaluated names with `re`, whose steps nothing counts."""
        if not any("unevaluatedProperties" in place.schema for place in places):
            return
        for place in places:
            for pattern in place.schema.get("patternProperties", ()):
                if may_be_slow(pattern):
                    raise refusal(
                        join(self._param, join(place.path, f"patternProperties.{pattern}")),
                        "a simpler expression beside unevaluatedProperties",
                        shown(pattern),
                        "Begin it with ^, and bound all repeats in it but one ({1,8} for +).",
                    )

    def _check_ends(self) -> None:
        heights: dict[int, int] = {}
        """Of the schemas that are done, how many speak of the same value in a row, at most."""
        for start in self._in_place:
            trail: list[tuple[int, Iterator[tuple[int, str]]]] = []
            open_: set[int] = set()
            if start not in heights:
                trail.append((start, iter(self._in_place[start])))
                open_.add(start)
            while trail:
                key, edges = trail[-1]
                following = next(edges, None)
                if following is None:
                    heights[key] = self._height(key, heights)
                    open_.discard(key)
                    trail.pop()
                    continue
                target, path = following
                if target in open_:
                    raise refusal(
                        join(self._param, path),
                        "a reference that ends",
                        "one that leads back to itself without a property or item between",
                    )
                if target not in heights and target in self._in_place:
                    trail.append((target, iter(self._in_place[target])))
                    open_.add(target)

    def _height(self, key: int, heights: Mapping[int, int]) -> int:
        below = ((heights.get(target, 0), path) for target, path in self._in_place[key])
        height, path = max(below, default=(0, ""))
        if height >= MOST_IN_A_ROW:
            raise refusal(
                join(self._param, path),
                f"at most {MOST_IN_A_ROW} schemas in a row without a property or item between",
                "more",
                "Refer to the last one directly.",
            )
        return height + 1


def _satisfiable(document: Document, param: str, *, is_closed: bool) -> Schema:
    normaliser = Normaliser(document, is_closed=is_closed)
    fault = _impossible(normaliser)
    if fault is None:
        return normaliser.schema()
    if is_closed:
        # Closed objects may exclude each other where the client's open ones do not.
        as_written = Normaliser(document, is_closed=False)
        fault = _impossible(as_written)
        if fault is None:
            return as_written.schema()
    raise refusal(
        join(param, fault),
        "something that a value can satisfy",
        "constraints that exclude each other",
        "No answer could be valid.",
    )


def _impossible(normaliser: Normaliser) -> str | None:
    """Where no value at all is possible though one is needed."""
    if isinstance(normaliser.root, Nothing):
        return ""
    able = possible(normaliser.definitions)
    for name, node in normaliser.definitions.items():
        # What is written as impossible may stand where it is optional; the rest is a mistake.
        is_meant = isinstance(node, Nothing) and Ref(name) != normaliser.root
        if name not in able and not is_meant:
            return _cause(name, normaliser, able)
    return None


def _cause(name: str, normaliser: Normaliser, able: set[str]) -> str:
    """Where the impossible begins: the innermost required part that excludes itself."""
    seen: set[str] = set()
    path = normaliser.places[name].path
    while name not in seen:
        seen.add(name)
        path = normaliser.places[name].path
        node: Node = normaliser.definitions[name]
        if isinstance(node, Union):
            node = node.options[0]
        if not isinstance(node, Object):
            return path
        known = dict(node.properties)
        for each in sorted(node.required):
            value = known.get(each, node.additional)
            if isinstance(value, Nothing):
                return join(path, f"properties.{each}" if each in known else "required")
            if isinstance(value, Ref) and value.name not in able:
                name = value.name
                break
    return path
