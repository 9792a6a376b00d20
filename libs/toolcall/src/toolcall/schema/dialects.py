"""The drafts of JSON Schema that clients write in, each with the validator that has the last word.

A schema is read by the draft that its `$schema` names; without one by the newest draft that knows
all of its keywords (tuples as a list of `items` came before 2020-12, boolean exclusive bounds
before draft-06).
The validators are jsonschema's, with what this service promises beyond them: an integer is written
without fraction or exponent, `multipleOf` is exact, OpenAPI's `nullable` holds, the formats of
FORMATS are asserted, and nothing is ever fetched.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache, cached_property, partial
from typing import Any, Literal

from jsonschema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
)
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from referencing import Specification
from referencing.jsonschema import (
    DRAFT4,
    DRAFT6,
    DRAFT7,
    DRAFT201909,
    DRAFT202012,
    EMPTY_REGISTRY,
)

from toolcall.errors import ToolCallError
from toolcall.schema.patterns import search
from toolcall.schema.positions import subschemas
from toolcall.schema.string_formats import FORMATS
from toolcall.schema.values import identity
from toolcall.schema.work import Work

DraftName = Literal["draft-04", "draft-06", "draft-07", "2019-09", "2020-12"]
Keyword = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]

APPLIED = 40
"""Steps (schema/work.py) of laying one schema on one value: the validator for it is made anew."""
LISTED = 4
"""Names, options or constants of a keyword that are looked through in a step."""
TOLD = 16
"""Characters of an error that are written in a step; each error repeats the whole value."""
READ_BY_OTHERS = frozenset({"then", "else", "minContains", "maxContains", "nullable"})
"""Keywords that a validator reads while it looks at another one."""
STACK_LEFT = 150
"""Frames of Python's stack that each step of a validation finds free; it uses up to a hundred."""
BOUNDS = ("exclusiveMinimum", "exclusiveMaximum")
URIS: Mapping[str, DraftName] = {
    "json-schema.org/draft-04/schema": "draft-04",
    "json-schema.org/draft-06/schema": "draft-06",
    "json-schema.org/draft-07/schema": "draft-07",
    "json-schema.org/draft/2019-09/schema": "2019-09",
    "json-schema.org/draft/2020-12/schema": "2020-12",
    "json-schema.org/schema": "2020-12",
}


class UnknownDialect(ToolCallError):
    """The `$schema` names no draft that is served."""


@dataclass(frozen=True)
class Dialect:
    """One draft."""

    name: DraftName
    stock: type[Validator]
    specification: Specification[Any]

    @cached_property
    def keywords(self) -> frozenset[str]:
        """What an instance is checked for; every other keyword is a remark."""
        return frozenset(self.stock.VALIDATORS) | READ_BY_OTHERS

    def unknown(self, schema: Mapping[str, Any]) -> list[str]:
        """The keywords of a schema that would decide something in another draft, but not here."""
        # The last decide only beside or as values that have the wrong shape where they are unknown.
        unknown = _all_keywords() - self.keywords - {"additionalItems", *BOUNDS}
        return [keyword for keyword in schema if keyword in unknown]

    @property
    def merges_ref_siblings(self) -> bool:
        """Up to draft-07 what stands beside a `$ref` is ignored."""
        return self.name in ("2019-09", "2020-12")

    @property
    def has_tuple_items(self) -> bool:
        """Before 2020-12 a list of `items` was what prefixItems is now."""
        return self.name != "2020-12"

    @property
    def has_boolean_bounds(self) -> bool:
        """In draft-04 `exclusiveMinimum` says of `minimum` that it is exclusive."""
        return self.name == "draft-04"


NEWEST_FIRST = (
    Dialect("2020-12", Draft202012Validator, DRAFT202012),
    Dialect("2019-09", Draft201909Validator, DRAFT201909),
    Dialect("draft-07", Draft7Validator, DRAFT7),
    Dialect("draft-06", Draft6Validator, DRAFT6),
    Dialect("draft-04", Draft4Validator, DRAFT4),
)
NEWEST = NEWEST_FIRST[0]
DIALECTS = {dialect.name: dialect for dialect in NEWEST_FIRST}


def dialect_of(source: object) -> Dialect:
    """The draft that a schema is written in. Raises UnknownDialect."""
    if not isinstance(source, Mapping):
        return NEWEST
    uri = source.get("$schema")
    if isinstance(uri, str):
        name = URIS.get(uri.partition("://")[2].rstrip("#"))
        if name is None:
            raise UnknownDialect(uri)
        return DIALECTS[name]
    used = used_keywords(source)
    return next((each for each in NEWEST_FIRST if _knows(each, used)), NEWEST)


def validator_of(source: Any, dialect: Dialect | None = None) -> Validator:
    """The validator of a checked schema; it is compiled once and used often."""
    strict = _strict(dialect or dialect_of(source))
    # An explicit registry: jsonschema's default one would fetch remote references.
    return strict(source, registry=EMPTY_REGISTRY)


def metered(validator: Validator, work: Work) -> Validator:
    """The validator as one that raises TooMuchWork where its checks cost more than is left.

    jsonschema hands `format_checker` on to every validator that it makes below, and nothing here
    asks one for formats: so it carries the meter.
    """
    return validator.evolve(schema=validator.schema, format_checker=work)


def used_keywords(source: Any) -> set[str]:
    """Every keyword in a schema, and `a tuple`, `a boolean bound` for two that changed meaning."""
    used: set[str] = set()
    waiting: list[Any] = [source]
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, Mapping):
            continue
        is_boolean_bound = {each for each in BOUNDS if isinstance(schema.get(each), bool)}
        used.update(schema.keys() - is_boolean_bound)
        if is_boolean_bound:
            used.add("a boolean bound")
        if isinstance(schema.get("items"), list):
            used.add("a tuple")
        waiting.extend(each for _, each in subschemas(schema))
    return used


def _knows(dialect: Dialect, used: set[str]) -> bool:
    if "a tuple" in used and not dialect.has_tuple_items:
        return False
    if ("a boolean bound" in used) != dialect.has_boolean_bounds:
        return False
    return all(keyword in dialect.keywords for keyword in used if keyword in _all_keywords())


@cache
def _all_keywords() -> frozenset[str]:
    return frozenset(keyword for dialect in NEWEST_FIRST for keyword in dialect.keywords)


@cache
def _strict(dialect: Dialect) -> type[Validator]:
    """The draft's validator with this service's promises."""
    stock = dialect.stock
    checks: dict[str, Keyword] = {
        **stock.VALIDATORS,
        "additionalProperties": _additional_properties,
        "format": _format,
        "multipleOf": _multiple_of,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "uniqueItems": _unique_items,
    }
    if "additionalItems" in checks:
        checks["additionalItems"] = _beside_a_tuple(checks["additionalItems"])
    strict: type[Validator] = extend(  # type: ignore[no-untyped-call] # jsonschema leaves it untyped
        stock,
        validators={keyword: _unless_null(check) for keyword, check in checks.items()},
        type_checker=stock.TYPE_CHECKER.redefine("integer", _is_integer),
    )
    _keep_dialect(strict)
    return strict


def _keep_dialect(strict: Any) -> None:
    """Lets a validator stay what it is below a schema that holds a `$schema` of its own.

    jsonschema would go on with its stock class there, without this service's promises. Every
    schema that is laid on a value comes by here, so this is also where they are counted.
    """
    evolve = strict.evolve

    def evolve_in_dialect(self: Any, **changes: Any) -> Any:
        _spend(self, APPLIED)
        schema = changes.get("schema")
        if isinstance(schema, Mapping) and "$schema" in schema:
            changes["schema"] = {key: schema[key] for key in schema if key != "$schema"}
        _check_stack()
        return evolve(self, **changes)

    strict.evolve = evolve_in_dialect


def _check_stack() -> None:
    """Raises RecursionError while there is stack left; every step down asks this.

    Where Python raises it while rpds (jsonschema's tables, in Rust) compares two keys, it becomes a
    panic, which is no Exception.
    """
    try:
        sys._getframe(sys.getrecursionlimit() // 2)
    except ValueError:
        return  # far from the end, even with a call into C for each frame
    _use_stack(STACK_LEFT)


def _use_stack(frames: int) -> None:
    if frames:
        _use_stack(frames - 1)


def _is_integer(_: object, instance: object) -> bool:
    return isinstance(instance, int) and not isinstance(instance, bool)


def _unless_null(check: Keyword) -> Keyword:
    def check_nullable(
        validator: Any, value: Any, instance: Any, schema: Any
    ) -> Iterable[ValidationError] | None:
        if instance is None and schema.get("nullable") is True:
            return ()
        if isinstance(value, list | dict):
            _spend(validator, len(value) // LISTED)
        # Not a generator: what nests deeply has a frame of the stack less for every level.
        return map(partial(_told, validator), check(validator, value, instance, schema) or ())

    return check_nullable


def _told(validator: Any, error: ValidationError) -> ValidationError:
    _spend(validator, APPLIED + len(error.message) // TOLD)
    return error


def _spend(validator: Any, steps: int) -> None:
    work = _meter(validator)
    if work is not None:
        work.spend(steps)


def _meter(validator: Any) -> Work | None:
    work: Work | None = validator.format_checker
    return work


def _beside_a_tuple(check: Keyword) -> Keyword:
    def check_rest(
        validator: Any, value: Any, instance: Any, schema: Any
    ) -> Iterable[ValidationError] | None:
        return check(validator, value, instance, schema) if _is_tuple(schema) else ()

    return check_rest


def _is_tuple(schema: Mapping[str, Any]) -> bool:
    return isinstance(schema.get("items"), list)


def _multiple_of(validator: Any, step: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "number") and not is_multiple(instance, step):
        yield ValidationError(f"{instance!r} is not a multiple of {step!r}")


def is_multiple(value: int | float, step: int | float) -> bool:
    """True when value is a whole multiple of step, both taken as the decimals they are written."""
    if value in (float("inf"), float("-inf")):
        return False
    return (exact(value) / exact(step)).denominator == 1


def exact(value: int | float) -> Fraction:
    """The number that is written, not the binary one beside it: 0.1 is a tenth."""
    return Fraction(value) if isinstance(value, int) else Fraction(Decimal(repr(value)))


def _unique_items(
    validator: Any, is_unique: Any, instance: Any, _: Any
) -> Iterator[ValidationError]:
    # jsonschema's own compares objects pair by pair: minutes for thousands of them.
    found = instance if is_unique and validator.is_type(instance, "array") else []
    if len({identity(each) for each in found}) < len(found):
        yield ValidationError(f"{instance!r} has non-unique elements")


def _pattern(validator: Any, pattern: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not search(pattern, instance, _meter(validator)):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Any, instance: Any, _: Any
) -> Iterator[ValidationError]:
    for name in instance if validator.is_type(instance, "object") else ():
        for pattern, schema in patterns.items():
            if search(pattern, name, _meter(validator)):
                yield from validator.descend(instance[name], schema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, additional: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name in instance if validator.is_type(instance, "object") else ():
        if name in known or any(search(pattern, name, _meter(validator)) for pattern in patterns):
            continue
        if additional is False:
            yield ValidationError(f"{name!r} is not a property here")
        else:
            yield from validator.descend(instance[name], additional, path=name)


def _format(validator: Any, name: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    expression = FORMATS.get(name)
    if not expression or not validator.is_type(instance, "string"):
        return
    if not search(expression, instance, _meter(validator)):
        yield ValidationError(f"{instance!r} is not a {name}")
