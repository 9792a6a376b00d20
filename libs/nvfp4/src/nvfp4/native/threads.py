"""Splits a call over threads: native functions release the interpreter and take a range."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from nvfp4.errors import WrongValue
from nvfp4.native.library import Isa


@dataclass(frozen=True)
class Execution:
    """How a native call runs; None leaves it to the processor and to torch's thread count."""

    isa: Isa | None = None
    threads: int | None = None

    def thread_count(self) -> int:
        """Threads that the call may use."""
        threads = torch.get_num_threads() if self.threads is None else self.threads
        if threads < 1:
            raise WrongValue("threads", "of at least 1", threads)
        return threads


def over_ranges(items: int, least: int, threads: int, call: Callable[[int, int], None]) -> None:
    """Calls `call(first, end)` for ranges that cover `items`, none smaller than `least` but one.

    Threads live as long as the call: a pool that is kept would be dead in a forked child.
    """
    parts = max(1, min(threads, items // max(least, 1)))
    if parts == 1:
        call(0, items)
        return
    edges = [items * part // parts for part in range(parts + 1)]
    with ThreadPoolExecutor(parts - 1) as pool:
        others = [pool.submit(call, *edges[part : part + 2]) for part in range(1, parts)]
        call(0, edges[1])
        for other in others:
            other.result()
