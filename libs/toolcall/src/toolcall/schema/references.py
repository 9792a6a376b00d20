"""A client's schema as places that can be told apart, and what its references stand for."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from jsonschema.protocols import Validator
from jsonschema_specifications import (  # type: ignore[import-untyped] # it ships no types
    REGISTRY,
)
from referencing.exceptions import Unresolvable

from toolcall.errors import ToolCallError
from toolcall.refusals import short_path
from toolcall.schema.dialects import Dialect, dialect_of, metered, validator_of
from toolcall.schema.positions import subschemas
from toolcall.schema.work import Work

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
INDEX = re.compile("0|[1-9][0-9]*")


class DanglingReference(ToolCallError):
    """A reference that leads nowhere inside the document."""


@dataclass(frozen=True, eq=False)
class Place:
    """A schema where it stands: `path` is dotted from the root, "" for the root itself."""

    schema: Any
    resolver: Any  # referencing's Resolver, a type that it does not export
    path: str

    @property
    def key(self) -> int:
        """Equal for the same schema of the same document, by whatever way it was reached."""
        return id(self.schema)


class Document:
    """One client schema. Its places live as long as it does."""

    def __init__(
        self, source: Any, dialect: Dialect | None = None, work: Work | None = None
    ) -> None:
        self.source = source
        self.work = work or Work()
        """What trying names and constants of the document may still cost."""
        self.dialect: Dialect = dialect or dialect_of(source)
        resource = self.dialect.specification.create_resource(source)
        self.root = Place(source, REGISTRY.resolver_with_root(resource), "")

    @cached_property
    def validator(self) -> Validator:
        """The validator with the last word; `is_valid` asks it about a part of the document."""
        return metered(validator_of(self.source, self.dialect), self.work)

    @cached_property
    def is_one_resource(self) -> bool:
        """True when no schema below the root has an id of its own."""
        return not any(
            isinstance(value, dict) and path and ("$id" in value or "id" in value)
            for value, path in _walk(self.source)
        )

    @cached_property
    def _paths(self) -> dict[int, str]:
        return {id(value): path for value, path in _walk(self.source)}

    def below(self, place: Place, path: str, schema: Any) -> Place:
        """The schema that stands inside of this one at a path from it."""
        resolver = place.resolver
        if isinstance(schema, Mapping) and ("$id" in schema or "id" in schema):
            resource = self.dialect.specification.create_resource(schema)
            resolver = resolver.in_subresource(resource)
        return Place(schema, resolver, join(place.path, path))

    def subplaces(self, place: Place) -> Iterator[Place]:
        """Every schema directly inside of this one."""
        for path, schema in subschemas(place.schema):
            yield self.below(place, path, schema)

    def target(self, place: Place, reference: str) -> Place:
        """What a reference stands for. Raises DanglingReference."""
        try:
            resolved = place.resolver.lookup(reference)
            uri, _, fragment = reference.partition("#")
            if fragment.startswith("/"):
                _check_indexes(place.resolver.lookup(f"{uri}#").contents, unquote(fragment))
        except (Unresolvable, LookupError, ValueError, TypeError) as error:
            # ValueError and TypeError: a pointer into a list or a scalar by a name.
            raise DanglingReference(reference) from error
        path = self._paths.get(id(resolved.contents), reference)
        return Place(resolved.contents, resolved.resolver, path)

    def holds(self, place: Place) -> bool:
        """False for a place of another document, which can only be a draft's meta-schema."""
        return id(place.schema) in self._paths

    def is_valid(self, place: Place, value: object) -> bool:
        """True when the validator accepts a value by the schema at this place."""
        if isinstance(place.schema, bool):
            return place.schema
        part: Any = self.validator
        return bool(part.evolve(schema=place.schema, _resolver=place.resolver).is_valid(value))


def join(path: str, suffix: str) -> str:
    """Two dotted paths as one, shortened where names are long."""
    dot = "." if path and suffix and not suffix.startswith("[") else ""
    return short_path(f"{path}{dot}{suffix}")


def _check_indexes(value: Any, pointer: str) -> None:
    """Raises ValueError where a list's item is not named as RFC 6901 does (-1, 01).

    The pointer is known to lead somewhere: `referencing` reads such names with int().
    """
    for token in pointer.split("/")[1:]:
        if isinstance(value, list):
            if not INDEX.fullmatch(token):
                raise ValueError(token)
            value = value[int(token)]
        else:
            value = value[token.replace("~1", "/").replace("~0", "~")]


def _walk(source: Any) -> Iterator[tuple[Any, str]]:
    """Every container of a JSON document with its path."""
    waiting = [(source, "")]
    while waiting:
        value, path = waiting.pop()
        if isinstance(value, dict):
            yield value, path
            waiting.extend((each, join(path, name)) for name, each in value.items())
        elif isinstance(value, list):
            yield value, path
            waiting.extend((each, join(path, f"[{index}]")) for index, each in enumerate(value))
