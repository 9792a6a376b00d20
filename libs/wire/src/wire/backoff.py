"""Waiting times between attempts to reach something that is away."""

import random
from collections.abc import Iterator


def delays_s(first_s: float = 0.1, factor: float = 2.0, most_s: float = 2.0) -> Iterator[float]:
    """Growing delays with full jitter, without end; the cap keeps recovery within seconds."""
    delay_s = first_s
    while True:
        yield random.uniform(delay_s / 2, delay_s)
        delay_s = min(delay_s * factor, most_s)
