"""One rank's KV memory: a number of blocks, each with a page for every layer of every cache.

The bytes that hold cache k, layer l, block b, head h, token n begin at

    base + offset[k] + l*layer[k] + b*block[k] + h*head[k] + n*token[k]

and are `content_bytes` long. Where layers are outermost, caches follow one another; where blocks
are, the pages of one block stand side by side in a row, padded to `block_alignment` at its end.
Upstream: vllm/v1/core/kv_cache_utils.py, `get_kv_cache_config_from_groups`, and
vllm/v1/kv_cache_interface.py, `compute_layout_strides` (0.32), for one KV cache group.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from kv_layout.arrays import Bytes
from kv_layout.caches import ALONE, Cache, Shard, require_count
from kv_layout.errors import LayoutCannotPack, Misaligned, UnknownName, WrongDtype, WrongShape
from kv_layout.layouts import KVLayout

LARGEST_ADDRESS = 2**63 - 1
"""Addresses are kept in signed 64-bit arrays; user space ends far below on every platform."""


@dataclass(frozen=True)
class Strides:
    """Bytes between neighbours along each axis of one cache, and where the cache begins."""

    offset: int
    layer: int
    block: int
    head: int
    token: int


@dataclass(frozen=True)
class Pool:
    """The memory of one rank: where every byte of every block lies.

    `base` is the address of the first byte. `block_alignment`: a block's row, or a layer's page
    where layers are outermost, begins at a multiple of it (counted from `base`).
    """

    layout: KVLayout
    caches: tuple[Cache, ...]
    blocks: int
    block_tokens: int
    shard: Shard = ALONE
    base: int = 0
    block_alignment: int = 1

    def __post_init__(self) -> None:
        require_count("blocks", self.blocks)
        require_count("block_tokens", self.block_tokens)
        require_count("block_alignment", self.block_alignment)
        require_count("base", self.base, least=0, most=LARGEST_ADDRESS)
        names = [cache.name for cache in self.caches]
        if not names or len(set(names)) < len(names):
            raise WrongShape("caches", "at least one, each name once", names)
        if self.base % self.block_alignment:
            raise Misaligned("base", self.block_alignment, self.base)
        pages = {self.page_bytes(cache) for cache in self.caches}
        heads = {len(self.heads_of(cache)) for cache in self.caches}
        if not self.layout.is_block_compact:
            if len(pages) > 1 or len(heads) > 1:
                raise LayoutCannotPack(self.layout.name, f"pages of {sorted(pages)} bytes")
            if self.layout.is_layer_outermost and min(pages) % self.block_alignment:
                raise LayoutCannotPack(
                    self.layout.name,
                    f"pages of {min(pages)} bytes aligned to {self.block_alignment}",
                )
        require_count("bytes of the pool", self.base + self.size_bytes, most=LARGEST_ADDRESS)

    def heads_of(self, cache: Cache) -> range:
        """The heads of the cache that this rank holds."""
        return self.shard.heads_of(cache)

    def page_bytes(self, cache: Cache) -> int:
        """Bytes of one layer of the cache in one block, without padding."""
        return len(self.heads_of(cache)) * self.block_tokens * cache.content_bytes

    @cached_property
    def block_bytes(self) -> int:
        """Bytes that one block takes over all caches and layers, padding included."""
        if self.layout.is_block_outermost:
            pages = sum(cache.layers * self.page_bytes(cache) for cache in self.caches)
            return _round_up(pages, self.block_alignment)
        return sum(
            cache.layers * _round_up(self.page_bytes(cache), self.block_alignment)
            for cache in self.caches
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole pool: what is registered with NIXL as one piece."""
        return self.blocks * self.block_bytes

    @cached_property
    def strides(self) -> dict[str, Strides]:
        """Strides by cache name."""
        offset, result = 0, {}
        for cache in self.caches:
            strides = self._strides_of(cache, offset)
            result[cache.name] = strides
            # In a row the next cache begins behind this one's pages, not behind its memory.
            layer_bytes = (
                self.page_bytes(cache) if self.layout.is_block_outermost else strides.layer
            )
            offset += cache.layers * layer_bytes
        return result

    def _strides_of(self, cache: Cache, offset: int) -> Strides:
        sizes = {
            "L": cache.layers,
            "B": self.blocks,
            "H": len(self.heads_of(cache)),
            "N": self.block_tokens,
            "C": cache.content_bytes,
        }
        strides, run = {}, 1
        for axis in reversed(self.layout.value):
            if axis == "B" and self.layout.is_block_outermost:
                run = self.block_bytes
            elif axis == "B" and self.layout.is_block_compact:
                run = _round_up(run, self.block_alignment)
            strides[axis] = run
            run *= sizes[axis]
        return Strides(offset, strides["L"], strides["B"], strides["H"], strides["N"])

    def address(self, cache: str, layer: int, block: int, head: int, token: int) -> int:
        """Address of one head's content at one token; `head` counts from this rank's first.

        Raises UnknownName and WrongCount for an index outside the pool.
        """
        kind = self.cache(cache)
        require_count("layer", layer, least=0, most=kind.layers - 1)
        require_count("block", block, least=0, most=self.blocks - 1)
        require_count("head", head, least=0, most=len(self.heads_of(kind)) - 1)
        require_count("token", token, least=0, most=self.block_tokens - 1)
        at = self.strides[cache]
        return (
            self.base
            + at.offset
            + layer * at.layer
            + block * at.block
            + head * at.head
            + token * at.token
        )

    def cache(self, name: str) -> Cache:
        """The cache of this name; raises UnknownName."""
        for cache in self.caches:
            if cache.name == name:
                return cache
        raise UnknownName("cache", name, [cache.name for cache in self.caches])

    def view(self, buffer: Bytes, cache: str, dtype: npt.DTypeLike = np.uint8) -> npt.NDArray[Any]:
        """The cache as an array [layers, blocks, heads, tokens, content] over the pool's bytes.

        buffer: uint8 [size_bytes], contiguous. The last axis counts elements of dtype. Raises
        WrongDtype, WrongShape, and Misaligned where an element would not lie on a multiple of its
        size.
        """
        check_buffer(buffer, self.size_bytes)
        kind, at, item = self.cache(cache), self.strides[cache], np.dtype(dtype).itemsize
        for name, value in (
            ("content", kind.content_bytes),
            ("cache offset", at.offset),
            ("layer stride", at.layer),
            ("block stride", at.block),
            ("buffer address", buffer.ctypes.data),
        ):
            if value % item:
                raise Misaligned(f"{name} as {np.dtype(dtype)}", item, value)
        return np.ndarray(
            (
                kind.layers,
                self.blocks,
                len(self.heads_of(kind)),
                self.block_tokens,
                kind.content_bytes // item,
            ),
            dtype,
            buffer,
            at.offset,
            (at.layer, at.block, at.head, at.token, item),
        )


def check_buffer(buffer: Bytes, size_bytes: int) -> None:
    """Raises WrongDtype or WrongShape unless the buffer is uint8 [size_bytes] and contiguous."""
    dtype = getattr(buffer, "dtype", type(buffer).__name__)
    if dtype != np.uint8:
        raise WrongDtype("buffer", "uint8", dtype)
    if buffer.shape != (size_bytes,) or not buffer.flags.c_contiguous:
        raise WrongShape(
            "buffer", f"[{size_bytes}] contiguous", f"{list(buffer.shape)} {buffer.strides}"
        )


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
