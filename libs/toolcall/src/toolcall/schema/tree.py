"""Normal forms put together: unions flattened, the impossible removed, definitions set in place."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from toolcall.schema.nodes import (
    Anything,
    Array,
    Boolean,
    Enum,
    Integer,
    Node,
    Nothing,
    Null,
    Number,
    Object,
    Ref,
    String,
    Union,
)

EVERYTHING = frozenset((Null(), Boolean(), Number(), String(), Array(), Object()))
MOST_ROUNDS = 50
"""Passes over the definitions that look for impossible ones; a chain of references that needs more
stays as it is, which is only wider."""
MOST_NESTED = 40
"""Definitions set into each other; deeper ones stay references, so that reading the tree never
exhausts Python's stack."""

MOST_COPIED = 20
"""Options, items and properties of a definition that is set in wherever it is used, though it is
used more than once: what is larger would multiply the tree for all that read it."""


def union(options: Iterable[Node]) -> Node:
    """Any of the options, none of them a Union itself."""
    found: dict[Node, None] = {}
    values: dict[str, None] = {}
    place_of_values: Node | None = None
    for option in options:
        match option:
            case Nothing():
                continue
            case Enum():
                if place_of_values is None:
                    place_of_values = option
                    found[option] = None
                values.update(dict.fromkeys(option.values))
            case _:
                found[option] = None
    if Anything() in found or found.keys() >= EVERYTHING:
        return Anything()
    if Number() in found:
        found = {node: None for node in found if not isinstance(node, Integer)}
    nodes = [Enum(tuple(values)) if node is place_of_values else node for node in found]
    if not nodes:
        return Nothing()
    return nodes[0] if len(nodes) == 1 else Union(tuple(nodes))


def assemble(root: Node, definitions: dict[str, Node]) -> tuple[Node, dict[str, Node]]:
    """The tree without impossible parts and without references that are used only once."""
    able = possible(definitions)
    pruned = {
        name: _prune(node, able.__contains__) for name, node in definitions.items() if name in able
    }
    if not isinstance(root, Ref):
        return root, {}
    if root.name not in able:
        return Nothing(), {}
    return _Placing(root.name, pruned).result()


def possible(definitions: dict[str, Node]) -> set[str]:
    """The definitions that some finite value satisfies: grown until nothing is added."""
    found: set[str] = set()
    # Parents stand before their children, so the reverse order settles most in one round.
    waiting = list(reversed(definitions.items()))
    for _ in range(MOST_ROUNDS):
        left = []
        for name, node in waiting:
            if isinstance(_prune(node, found.__contains__), Nothing):
                left.append((name, node))
            else:
                found.add(name)
        if len(left) == len(waiting):
            return found
        waiting = left
    return found | {name for name, _ in waiting}


def _prune(node: Node, is_possible: Callable[[str], bool]) -> Node:
    """The node without its impossible parts, given which definitions are possible."""
    match node:
        case Ref(name):
            return node if is_possible(name) else Nothing()
        case Union(options):
            return union(_prune(option, is_possible) for option in options)
        case Array():
            return _prune_array(node, is_possible)
        case Object():
            return _prune_object(node, is_possible)
        case _:
            return node


def _prune_array(node: Array, is_possible: Callable[[str], bool]) -> Node:
    prefix = tuple(_prune(each, is_possible) for each in node.prefix)
    items = _prune(node.items, is_possible)
    most = node.max_items
    reach = next((at for at, each in enumerate(prefix) if isinstance(each, Nothing)), None)
    if reach is None and isinstance(items, Nothing):
        reach = len(prefix)
    if reach is not None:
        prefix = prefix[:reach]
        most = reach if most is None else min(most, reach)
    if most is not None and node.min_items > most:
        return Nothing()
    return Array(prefix, items, node.min_items, most)


def _prune_object(node: Object, is_possible: Callable[[str], bool]) -> Node:
    additional = _prune(node.additional, is_possible)
    properties = tuple((name, _prune(each, is_possible)) for name, each in node.properties)
    known = dict(properties)
    if any(isinstance(known.get(name, additional), Nothing) for name in node.required):
        return Nothing()
    if isinstance(additional, Nothing):
        properties = tuple(pair for pair in properties if not isinstance(pair[1], Nothing))
        if len(properties) < node.min_properties:
            return Nothing()
    return replace(node, properties=properties, additional=additional)


class _Placing:
    """Puts definitions where they are used, but for those that are shared or recursive.

    Shared ones that refer to nothing are put there too as long as they are small.
    A definition that is used once cannot be part of a cycle that the root reaches: entering the
    cycle from outside and closing it already makes two uses of one of its members.
    """

    def __init__(self, root: str, definitions: Mapping[str, Node]) -> None:
        self._given = definitions
        self._uses: dict[str, int] = {}
        waiting = [root]
        while waiting:
            name = waiting.pop()
            self._uses[name] = self._uses.get(name, 0) + 1
            if self._uses[name] == 1:
                waiting.extend(_refs(definitions[name]))
        self._kept: dict[str, Node] = {}
        self._waiting: list[str] = []
        self._root = root

    def result(self) -> tuple[Node, dict[str, Node]]:
        """The root and the definitions that it still needs."""
        root = self._set(self._given[self._root], 0)
        while self._waiting:
            name = self._waiting.pop()
            self._kept[name] = self._set(self._given[name], 0)
        return root, self._kept

    def _set(self, node: Node, depth: int) -> Node:
        match node:
            case Ref(name):
                return self._set_ref(node, name, depth)
            case Union(options):
                return Union(tuple(self._set(option, depth) for option in options))
            case Array():
                prefix = tuple(self._set(each, depth) for each in node.prefix)
                return replace(node, prefix=prefix, items=self._set(node.items, depth))
            case Object():
                return replace(
                    node,
                    properties=tuple(
                        (name, self._set(each, depth)) for name, each in node.properties
                    ),
                    additional=self._set(node.additional, depth),
                )
            case _:
                return node

    def _set_ref(self, ref: Ref, name: str, depth: int) -> Node:
        node = self._given[name]
        if self._uses[name] == 1 and depth < MOST_NESTED:
            return self._set(node, depth + 1)
        if _parts(node) <= MOST_COPIED and next(_refs(node), None) is None:
            return node
        if name not in self._kept:
            self._kept[name] = ref
            self._waiting.append(name)
        return ref


def _parts(node: Node) -> int:
    """How many nodes a definition holds that refers to nothing."""
    match node:
        case Union(options):
            return sum(map(_parts, options))
        case Array():
            return 1 + len(node.prefix)
        case Object():
            return 1 + len(node.properties)
        case _:
            return 1


def _refs(node: Node) -> Iterator[str]:
    match node:
        case Ref(name):
            yield name
        case Union(options):
            for option in options:
                yield from _refs(option)
        case Array():
            for each in (*node.prefix, node.items):
                yield from _refs(each)
        case Object():
            for _, each in node.properties:
                yield from _refs(each)
            yield from _refs(node.additional)
        case _:
            return
