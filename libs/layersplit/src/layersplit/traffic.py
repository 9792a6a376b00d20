"""What a rank stores, and what it received from others."""

from dataclasses import dataclass


@dataclass
class Traffic:
    """Bytes of one rank; `stored` and `slots` are memory, the others grow with every chunk.

    Summed over the ranks, what is received is what crosses links (a multicast may move less).
    """

    stored: int = 0
    slots: int = 0
    received_kv: int = 0
    received_index: int = 0
    received_new_rows: int = 0

    @property
    def held(self) -> int:
        """Memory: the rank's layers, and the slots that others' layers pass through."""
        return self.stored + self.slots

    @property
    def received(self) -> int:
        """Everything that came from other ranks."""
        return self.received_kv + self.received_index + self.received_new_rows
