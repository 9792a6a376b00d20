"""The split cache: a layer's rows live at its owner and are broadcast to the others for each use.

Three invariants. Nobody reads rows that are still under way: the only way to a layer's rows is
through a `Fetch`, which waits first. No broadcast overwrites rows that are being read: others'
layers arrive in two slots, and a slot is taken again only after its fetch was released. Nobody
reads rows that were never appended: a layer grows chunk by chunk, and every rank keeps its length.

Every rank must append and fetch in the same order.
"""

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

from layersplit.errors import (
    AppendOutOfOrder,
    FetchReleased,
    NotAppended,
    OutOfRange,
    RanksDisagree,
    SlotsBusy,
    WrongRows,
)
from layersplit.groups import CacheGroups
from layersplit.rows import CacheShape, LayerRows, owner_map, tokens_of
from layersplit.traffic import Traffic

SLOTS = 2
"""One layer is read while the next arrives; a third would only cost memory."""


class Fetch:
    """One layer's rows on this rank, arrived or under way."""

    def __init__(self, cache: "LayerSplitCache", layer: int, kv: Any, index: Any) -> None:
        self.layer = layer
        self._cache = cache
        self._kv, self._index = kv, index
        self._kv_works: list[Any] = []
        self._index_works: list[Any] = []
        self._end = 0
        self._is_released = False

    def extend(self, end: int) -> None:
        """Starts the broadcast of the tokens from where the last one ended up to `end`.

        Raises OutOfRange, and NotAppended on every rank alike.
        """
        self._require_held()
        self._cache.check_appended(self.layer, self._end, end)
        if self._end == end:
            return
        span = slice(self._end, end)
        rows = self._cache.shape.layers[self.layer]
        # The indexer's rows first: they are what the layer waits for before anything else.
        if rows.index_bytes:
            self._index_works.append(self._cache.send_index(self.layer, self._index[span]))
        self._kv_works.append(self._cache.send_kv(self.layer, self._kv[span]))
        self._end = end

    def index(self) -> Any:
        """Indexer rows, uint8 [tokens, index_bytes], once they are all here; None without any."""
        self._require_held()
        _wait(self._index_works)
        return self._index[: self._end] if self._index is not None else None

    def rows(self) -> Any:
        """KV rows, uint8 [tokens, kv_bytes], once they are all here."""
        self._require_held()
        _wait(self._kv_works)
        return self._kv[: self._end]

    def release(self) -> None:
        """Gives the slot back; the tensors that were handed out may change from now on.

        A second release changes nothing: the layer may have been fetched again by then.
        """
        if self._is_released:
            return
        _wait(self._index_works)
        _wait(self._kv_works)
        self._is_released = True
        self._cache.give_back(self)

    def _require_held(self) -> None:
        if self._is_released:
            raise FetchReleased(self.layer)


class LayerSplitCache:
    """One request's KV over all ranks of a context-parallel group. Not for several threads."""

    def __init__(self, shape: CacheShape, groups: CacheGroups, device: str = "cpu") -> None:
        """`groups`: those of the ranks that share the cache; each of them comes here.

        Raises RanksDisagree.
        """
        self.shape = shape
        self._groups, self._members = groups, groups.members
        self.rank, self.ranks = dist.get_rank(groups.append), len(self._members)
        self.owners = owner_map(shape.layers, self.ranks)
        _require_agreement(shape, self.ranks, groups.append)
        self._appended = [0] * len(shape.layers)
        self._stored = {
            layer: _empty_rows(shape.tokens, rows, device)
            for layer, rows in enumerate(shape.layers)
            if self.owners[layer] == self.rank
        }
        widest = LayerRows(
            max(rows.kv_bytes for rows in shape.layers),
            max(rows.index_bytes for rows in shape.layers),
        )
        self._free_slots = [
            (
                torch.empty(shape.tokens * widest.kv_bytes, dtype=torch.uint8, device=device),
                torch.empty(shape.tokens * widest.index_bytes, dtype=torch.uint8, device=device),
            )
            for _ in range(SLOTS)
        ]
        self._held: dict[int, Any] = {}
        self.traffic = Traffic(
            stored=bytes_of(self._stored.values()), slots=bytes_of(self._free_slots)
        )

    def append(self, layer: int, first: int, end: int, kv: Any, index: Any) -> None:
        """Stores the chunk `first` to `end`: each rank gives the rows of its own tokens.

        kv: uint8 [tokens_of(first, end, rank, ranks), kv_bytes]; index the same with index_bytes,
        None where the layer has no indexer. `first` is where the layer's last chunk ended. Ends
        when this rank's rows have been handed over, on the owner when all are there. Raises
        WrongRows, OutOfRange and AppendOutOfOrder.
        """
        self.check_layer(layer)
        self.check_tokens(first, end)
        if first != self._appended[layer]:
            raise AppendOutOfOrder(layer, self._appended[layer], first)
        check_rows(self.shape.layers[layer], len(self._tokens_of(first, end)), kv, index)
        if self.owners[layer] == self.rank:
            self._receive(layer, first, end, kv, index)
        else:
            owner = self._members[self.owners[layer]]
            for part in (kv, index):
                if part is not None and part.numel():
                    dist.send(part, owner, group=self._groups.append)
        self._appended[layer] = end

    def fetch(self, layer: int, end: int) -> Fetch:
        """Starts to bring the layer's first `end` tokens here; 0 if they come by `extend`.

        Raises OutOfRange, and NotAppended and SlotsBusy on every rank alike.
        """
        self.check_layer(layer)
        self.check_appended(layer, 0, end)
        if layer in self._held or len(self._held) == SLOTS:
            raise SlotsBusy(layer, sorted(self._held))
        if layer in self._stored:
            kv, index = self._stored[layer]
            self._held[layer] = None
        else:
            slot = self._free_slots.pop()
            self._held[layer] = slot
            kv, index = _rows_in(slot, self.shape.tokens, self.shape.layers[layer])
        fetch = Fetch(self, layer, kv, index)
        fetch.extend(end)
        return fetch

    def send_index(self, layer: int, rows: Any) -> Any:
        """Broadcasts indexer rows from the owner; the work that ends when they are here."""
        if self.owners[layer] != self.rank:
            self.traffic.received_index += rows.numel()
        return broadcast(rows, self._members[self.owners[layer]], self._groups.index)

    def send_kv(self, layer: int, rows: Any) -> Any:
        """Broadcasts KV rows from the owner; the work that ends when they are here."""
        if self.owners[layer] != self.rank:
            self.traffic.received_kv += rows.numel()
        return broadcast(rows, self._members[self.owners[layer]], self._groups.kv)

    def give_back(self, fetch: Fetch) -> None:
        """Frees what the fetch held; only `Fetch.release` comes here, once."""
        slot = self._held.pop(fetch.layer)
        if slot is not None:
            self._free_slots.append(slot)

    def check_layer(self, layer: int) -> None:
        """Raises OutOfRange for a layer that the cache does not have."""
        if not 0 <= layer < len(self.shape.layers):
            raise OutOfRange("layer", f"0 to {len(self.shape.layers) - 1}", layer)

    def check_tokens(self, first: int, end: int) -> None:
        """Raises OutOfRange for tokens beyond the cache, or a stretch that runs backwards."""
        if not 0 <= first <= end <= self.shape.tokens:
            expected = f"0 <= first <= end <= {self.shape.tokens}"
            raise OutOfRange("tokens", expected, f"first {first}, end {end}")

    def check_appended(self, layer: int, first: int, end: int) -> None:
        """Raises OutOfRange, and NotAppended for tokens that the layer does not hold yet."""
        self.check_tokens(first, end)
        if end > self._appended[layer]:
            raise NotAppended(layer, self._appended[layer], end)

    def _tokens_of(self, first: int, end: int) -> range:
        return tokens_of(first, end, self.rank, self.ranks)

    def _receive(self, layer: int, first: int, end: int, kv: Any, index: Any) -> None:
        """Takes every rank's rows straight into their place."""
        stored_kv, stored_index = self._stored[layer]
        for rank in range(self.ranks):
            tokens = tokens_of(first, end, rank, self.ranks)
            span = slice(tokens.start, tokens.stop)
            for stored, part in ((stored_kv, kv), (stored_index, index)):
                if stored is None or not len(tokens):
                    continue
                if rank == self.rank:
                    stored[span].copy_(part)
                else:
                    dist.recv(stored[span], self._members[rank], group=self._groups.append)
                    self.traffic.received_new_rows += stored[span].numel()


def bytes_of(pairs: Iterable[tuple[Any, Any]]) -> int:
    """Memory of pairs of KV and indexer rows; None holds nothing."""
    return sum(rows.nbytes for pair in pairs for rows in pair if rows is not None)


def broadcast(rows: Any, source: int, group: Any) -> Any:
    """Starts a broadcast from the global rank `source`; returns the work to wait for."""
    return dist.broadcast(rows, source, group=group, async_op=True)


def check_rows(layer: LayerRows, tokens: int, kv: Any, index: Any) -> None:
    """Raises WrongRows unless both are uint8 [tokens, their bytes], contiguous."""
    for what, rows, row_bytes in (("kv", kv, layer.kv_bytes), ("index", index, layer.index_bytes)):
        if row_bytes == 0:
            if rows is not None:
                raise WrongRows(what, "None: the layer has no indexer", f"{tuple(rows.shape)}")
            continue
        expected = f"uint8 [{tokens}, {row_bytes}] contiguous"
        if rows is None:
            raise WrongRows(what, expected, "None")
        if rows.dtype != torch.uint8:
            raise WrongRows(what, expected, f"{rows.dtype}")
        if tuple(rows.shape) != (tokens, row_bytes) or not rows.is_contiguous():
            raise WrongRows(what, expected, f"{list(rows.shape)} with strides {rows.stride()}")


def _empty_rows(tokens: int, rows: LayerRows, device: str) -> tuple[Any, Any]:
    kv = torch.zeros(tokens, rows.kv_bytes, dtype=torch.uint8, device=device)
    if not rows.index_bytes:
        return kv, None
    return kv, torch.zeros(tokens, rows.index_bytes, dtype=torch.uint8, device=device)


def _rows_in(slot: tuple[Any, Any], tokens: int, rows: LayerRows) -> tuple[Any, Any]:
    """The slot's memory as rows of this layer."""
    kv, index = slot
    kv_rows = kv[: tokens * rows.kv_bytes].view(tokens, rows.kv_bytes)
    if not rows.index_bytes:
        return kv_rows, None
    return kv_rows, index[: tokens * rows.index_bytes].view(tokens, rows.index_bytes)


def _require_agreement(shape: CacheShape, ranks: int, group: Any) -> None:
    shapes: list[Any] = [None] * ranks
    dist.all_gather_object(shapes, shape, group=group)
    for other in range(ranks):
        if shapes[other] != shapes[0]:
            raise RanksDisagree(other, shapes[0], shapes[other])


def _wait(works: list[Any]) -> None:
    for work in works:
        work.wait()
    works.clear()
