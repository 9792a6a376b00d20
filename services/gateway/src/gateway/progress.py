"""How far each running request has come, kept where a SIGKILL cannot take it away.

A file mapped into memory, one slot per running request: request id and token counts. Updating a
slot costs a memory copy and no system call, so it is done for every chunk before the chunk goes
out. What the slot says after a crash is therefore never less than what the client was sent.
"""

import mmap
import os
import struct
from collections import deque
from pathlib import Path
from uuid import UUID

from gateway.errors import TooBusy
from gateway.relay import Usage

_SLOT = struct.Struct("<16sQQQ")
_FREE = bytes(_SLOT.size)


class ProgressFile:
    """`slots` bounds the requests in flight; when none is free `take` refuses."""

    def __init__(self, path: Path, slots: int) -> None:
        self._slots = slots
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # Never shorter than it was: an earlier process may have had more slots.
            size_bytes = max(slots * _SLOT.size, os.fstat(descriptor).st_size)
            os.ftruncate(descriptor, size_bytes)
            self._map = mmap.mmap(descriptor, size_bytes)
        finally:
            os.close(descriptor)
        self._free = deque(range(slots))

    @property
    def in_use(self) -> int:
        """Running requests."""
        return self._slots - len(self._free)

    def left_behind(self) -> dict[str, Usage]:
        """What an earlier process had counted, by request id."""
        found = {}
        for start in range(0, len(self._map) - _SLOT.size + 1, _SLOT.size):
            name, prompt, cached, completion = _SLOT.unpack_from(self._map, start)
            if any(name):
                found[str(UUID(bytes=name))] = Usage(prompt, cached, completion)
        return found

    def clear(self) -> None:
        """Forgets every slot; call it when what was left behind is safe in the spool."""
        self._map[:] = bytes(len(self._map))

    def take(self, request_id: str) -> int:
        """A slot for this request; raises TooBusy when all are taken."""
        if not self._free:
            raise TooBusy(f"{self._slots} requests are running here already. Try again shortly.")
        slot = self._free.popleft()
        _SLOT.pack_into(self._map, slot * _SLOT.size, UUID(request_id).bytes, 0, 0, 0)
        return slot

    def note(self, slot: int, request_id: bytes, usage: Usage) -> None:
        """Writes down what is certain by now."""
        _SLOT.pack_into(
            self._map,
            slot * _SLOT.size,
            request_id,
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.completion_tokens,
        )

    def give_back(self, slot: int) -> None:
        """Frees a slot."""
        start = slot * _SLOT.size
        self._map[start : start + _SLOT.size] = _FREE
        self._free.append(slot)

    def close(self) -> None:
        """Unmaps the file."""
        self._map.close()
