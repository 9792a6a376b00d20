"""A transfer plan as a table: what one request of a model costs in each layout."""

from collections.abc import Sequence
from dataclasses import dataclass

from kv_layout.caches import Cache, Shard, require_count
from kv_layout.errors import LayoutCannotPack
from kv_layout.layouts import KVLayout
from kv_layout.pools import Pool
from kv_layout.regions import regions
from kv_layout.transfers import Tokens, blocks_for, count_descriptors, total_bytes

HEADINGS = (
    "from",
    "to",
    "block",
    "TP",
    "regions",
    "blocks",
    "descriptors",
    "MB",
    "mean bytes",
)


@dataclass(frozen=True)
class Side:
    """One engine of a transfer."""

    layout: KVLayout
    block_tokens: int
    ranks: int

    def __post_init__(self) -> None:
        require_count("block_tokens", self.block_tokens)
        require_count("tensor-parallel size", self.ranks)

    def blocks(self, context: int) -> int:
        """How many blocks hold the context."""
        require_count("context", context)
        return blocks_for(context, self.block_tokens)

    def pool(self, caches: tuple[Cache, ...], context: int, rank: int = 0) -> Pool:
        """A pool of this side that holds the context and a block more.

        In a pool of one block all layers touch and would count as one run, as in no real pool.
        """
        blocks = self.blocks(context) + 1
        return Pool(self.layout, caches, blocks, self.block_tokens, Shard(rank, self.ranks))


def row(caches: tuple[Cache, ...], context: int, source: Side, target: Side) -> tuple[str, ...]:
    """One line of the table: what rank 0 of the target reads, from all source ranks."""
    tokens = Tokens(context)
    names = (
        source.layout.name,
        target.layout.name,
        _one_or_both(source.block_tokens, target.block_tokens),
        _one_or_both(source.ranks, target.ranks),
    )
    try:
        to = target.pool(caches, context)
        froms = [source.pool(caches, context, rank) for rank in range(source.ranks)]
    except LayoutCannotPack:
        return (*names, "-", "-", "cannot hold these caches", "-", "-")
    descriptors = sum(count_descriptors(pool, to, tokens) for pool in froms)
    moved = sum(total_bytes(pool, to, tokens) for pool in froms)
    return (
        *names,
        _one_or_both(len(regions(froms[0])), len(regions(to))),
        _one_or_both(source.blocks(context), target.blocks(context)),
        f"{descriptors:,}",
        f"{moved / 1e6:,.1f}",
        f"{moved / descriptors:,.0f}",
    )


def table(title: str, rows: Sequence[tuple[str, ...]]) -> str:
    """The rows under their headings, columns aligned, numbers to the right."""
    lines = [HEADINGS, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    text = [title]
    for line in lines:
        cells = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        text.append("  ".join(cells).rstrip())
    return "\n".join(text) + "\n"


def _one_or_both(source: int, target: int) -> str:
    return f"{source:,}" if source == target else f"{source:,} > {target:,}"
