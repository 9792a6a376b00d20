"""What a rank stores, and what it received from others."""

from dataclasses import dataclass


@dataclass
class Traffic:
    """Bytes of one rank; `stored` and `slots` are memory, the others grow with every chunk.

    `stored`: the rank's layers. `slots`: what others' layers pass through. `received_new_rows`: a
    chunk's rows that other ranks computed, on the way to where they are stored.

    Summed over the ranks, what is received is what crosses links (a multicast may move less).
    """

    stored: int = 0
    slots: int = 0
    received_kv: int = 0
    received_index: int = 0
    received_new_rows: int = 0

    @property
    def received(self) -> int:
        """Everything that came from other ranks."""
        return self.received_kv + self.received_index + self.received_new_rows
