"""The normal form of a JSON Schema: a small tree that grammars and parsers read.

Invariant (soundness): the tree accepts every instance that the client's schema accepts. It may
accept more; where it does, the schema says so in `unenforced`, and the guard has the last word.
References keep recursion: a Ref names an entry of `Schema.definitions`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True)
class Anything:
    """Any JSON value."""


@dataclass(frozen=True)
class Nothing:
    """No value at all (`false`, an empty union)."""


@dataclass(frozen=True)
class Null:
    """null."""


@dataclass(frozen=True)
class Boolean:
    """true or false."""


@dataclass(frozen=True)
class Integer:
    """A number without fraction or exponent; bounds are inclusive."""

    minimum: int | None = None
    maximum: int | None = None
    multiple_of: int | None = None


@dataclass(frozen=True)
class Number:
    """Any JSON number."""

    minimum: Decimal | None = None
    maximum: Decimal | None = None
    is_minimum_exclusive: bool = False
    is_maximum_exclusive: bool = False


@dataclass(frozen=True)
class String:
    """A string; lengths count Unicode code points, `pattern` is searched, not matched."""

    min_length: int = 0
    max_length: int | None = None
    pattern: str | None = None
    format: str | None = None


@dataclass(frozen=True)
class Enum:
    """One of these values, each kept as its JSON text (`"a"` with quotes, `5`, `{"k": 1}`)."""

    values: tuple[str, ...]


@dataclass(frozen=True)
class Array:
    """`prefix` items first, then any number of `items`."""

    prefix: tuple["Node", ...] = ()
    items: "Node" = Anything()
    min_items: int = 0
    max_items: int | None = None


@dataclass(frozen=True)
class Object:
    """Named properties in declared order, and what other properties may hold.

    `additional` is Nothing for a closed object. A required name without a property of its own has
    `additional` as its node.
    """

    properties: tuple[tuple[str, "Node"], ...] = ()
    required: frozenset[str] = frozenset()
    additional: "Node" = Anything()
    min_properties: int = 0
    max_properties: int | None = None


@dataclass(frozen=True)
class Union:
    """Any of the options."""

    options: tuple["Node", ...]


@dataclass(frozen=True)
class Ref:
    """The definition of this name."""

    name: str


Node = (
    Anything
    | Nothing
    | Null
    | Boolean
    | Integer
    | Number
    | String
    | Enum
    | Array
    | Object
    | Union
    | Ref
)


@dataclass(frozen=True)
class Unenforced:
    """A keyword that the tree does not carry; only the guard sees it."""

    path: str
    keyword: str
    reason: str


@dataclass(frozen=True)
class Schema:
    """A normalised schema. `source` is the client's own, which the guard validates against."""

    root: Node
    definitions: Mapping[str, Node]
    unenforced: tuple[Unenforced, ...]
    source: object

    def resolve(self, node: Node) -> Node:
        """The node itself, or what a Ref stands for; never a Ref."""
        while isinstance(node, Ref):
            node = self.definitions[node.name]
        return node
