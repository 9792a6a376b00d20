"""The reference: every rank stores every row. Same interface as the split cache, no broadcasts."""

from typing import Any

import torch
import torch.distributed as dist

from layersplit.cache import bytes_of, check_rows
from layersplit.rows import CacheShape, tokens_of
from layersplit.traffic import Traffic


class ReplicatedCache:
    """One request's KV, whole on every rank."""

    def __init__(self, shape: CacheShape, group: Any, device: str = "cpu") -> None:
        """`group`: the process group that shares the cache."""
        self.shape = shape
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self._members = dist.get_process_group_ranks(group)
        self._group = group
        self._kv = [
            torch.zeros(shape.tokens, rows.kv_bytes, dtype=torch.uint8, device=device)
            for rows in shape.layers
        ]
        self._index = [
            torch.zeros(shape.tokens, rows.index_bytes, dtype=torch.uint8, device=device)
            for rows in shape.layers
        ]
        self.traffic = Traffic(stored=bytes_of(zip(self._kv, self._index, strict=True)))

    def append(self, layer: int, first: int, end: int, kv: Any, index: Any) -> None:
        """Stores the chunk on every rank; arguments as in the split cache."""
        mine = tokens_of(first, end, self.rank, self.ranks)
        check_rows(self.shape.layers[layer], len(mine), kv, index)
        for stored, part in ((self._kv[layer], kv), (self._index[layer], index)):
            if part is None:
                continue
            stored[mine.start : mine.stop].copy_(part)
            for rank in range(self.ranks):
                tokens = tokens_of(first, end, rank, self.ranks)
                span = stored[tokens.start : tokens.stop]
                if not span.numel():
                    continue
                dist.broadcast(span, self._members[rank], group=self._group)
                if rank != self.rank:
                    self.traffic.received_new_rows += span.numel()

    def fetch(self, layer: int, end: int) -> "Held":
        """The layer's rows, which are always here."""
        index = self._index[layer] if self.shape.layers[layer].index_bytes else None
        return Held(self._kv[layer], index, end)


class Held:
    """A layer's rows that need no fetching."""

    def __init__(self, kv: Any, index: Any, end: int) -> None:
        self._kv, self._index, self._end = kv, index, end

    def extend(self, end: int) -> None:
        """Goes on up to `end`."""
        self._end = end

    def index(self) -> Any:
        """As `Fetch.index`."""
        return None if self._index is None else self._index[: self._end]

    def rows(self) -> Any:
        """As `Fetch.rows`."""
        return self._kv[: self._end]

    def release(self) -> None:
        """Nothing to give back."""
