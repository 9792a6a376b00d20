"""The longest runs of bytes that are contiguous on both sides of a copy.

A copy is a nest of loops with a stride on either side. An axis whose neighbours lie exactly one run
apart on both sides belongs into the run; what is left are the descriptors.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kv_layout.arrays import Integers


@dataclass(frozen=True)
class Axis:
    """One loop of a copy: how often, and how many bytes apart on either side."""

    count: int
    source: int
    target: int


@dataclass(frozen=True)
class Copies:
    """Descriptors of one transfer: equally long int64 arrays [descriptors], in bytes.

    `source` and `target` are addresses; each byte of the target is written at most once.
    """

    source: Integers
    target: Integers
    length: Integers

    def __len__(self) -> int:
        return int(self.length.size)

    @property
    def total_bytes(self) -> int:
        """Bytes moved."""
        return int(self.length.sum())


def fuse(run: int, axes: list[Axis]) -> tuple[int, list[Axis]]:
    """Grows a run of bytes over every axis that continues it on both sides; the rest are left."""
    left = [axis for axis in axes if axis.count > 1]
    while True:
        fitting = [axis for axis in left if axis.source == run and axis.target == run]
        if not fitting:
            return run, left
        left.remove(fitting[0])
        run *= fitting[0].count


def spread(addresses: Integers, axes: list[Axis], side: str) -> Integers:
    """Every address of the loops that begin at each of the addresses, as one int64 array."""
    for axis in axes:
        steps = np.arange(axis.count, dtype=np.int64) * getattr(axis, side)
        addresses = (addresses[:, None] + steps).ravel()
    return addresses


def merge(copies: Copies) -> Copies:
    """Joins descriptors that continue each other on both sides, in order of the source."""
    if len(copies) < 2:
        return copies
    order = np.argsort(copies.source, kind="stable")
    source, target, length = (part[order] for part in (copies.source, copies.target, copies.length))
    begins: npt.NDArray[np.bool_] = np.ones(len(copies), dtype=bool)
    begins[1:] = (source[:-1] + length[:-1] != source[1:]) | (
        target[:-1] + length[:-1] != target[1:]
    )
    starts = np.flatnonzero(begins)
    return Copies(source[starts], target[starts], np.add.reduceat(length, starts))


def concatenate(parts: list[Copies]) -> Copies:
    """All descriptors of the parts, one after the other."""
    if not parts:
        none: Integers = np.empty(0, dtype=np.int64)
        return Copies(none, none, none)
    return Copies(
        np.concatenate([part.source for part in parts]),
        np.concatenate([part.target for part in parts]),
        np.concatenate([part.length for part in parts]),
    )
