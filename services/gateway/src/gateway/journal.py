"""An append-only file of checked records: the bytes under the usage spool.

A record is whole or it is not there: each carries its length and CRC, a failed write is cut off
again, and a torn last record (the process died in it) is dropped at the next start. Writes go to
the page cache, without fsync: they survive the death of the process, not that of the machine (see
the README).
"""

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import observe

log = observe.get_logger(__name__)

_HEAD = struct.Struct("<IIc")
NAME = "usage-{:08d}.spool"


@dataclass(frozen=True)
class Record:
    """A kind of one byte and its payload."""

    kind: bytes
    payload: bytes

    def pack(self) -> bytes:
        """The record as it stands in the file."""
        crc = zlib.crc32(self.payload, zlib.crc32(self.kind))
        return _HEAD.pack(len(self.payload), crc, self.kind) + self.payload


class Journal:
    """The newest file of a folder, open for appending. Older ones are gone once a newer one is
    whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        numbers = sorted(int(path.stem.split("-")[1]) for path in folder.glob("usage-*.spool"))
        self._number = numbers[-1] if numbers else 1
        for number in numbers[:-1]:
            (folder / NAME.format(number)).unlink()
        self._file = _open(self.path)
        self.size_bytes = os.fstat(self._file).st_size

    @property
    def path(self) -> Path:
        """The file in use."""
        return self._folder / NAME.format(self._number)

    def read(self) -> Iterator[Record]:
        """Every record from the start; cuts the file where they end."""
        content = self.path.read_bytes()
        position = 0
        while position + _HEAD.size <= len(content):
            length, crc, kind = _HEAD.unpack_from(content, position)
            payload = content[position + _HEAD.size : position + _HEAD.size + length]
            if len(payload) < length or zlib.crc32(payload, zlib.crc32(kind)) != crc:
                break
            position += _HEAD.size + length
            yield Record(kind, payload)
        if position < len(content):
            self._cut(content, position)

    def append(self, record: Record) -> None:
        """Adds one record; raises OSError and leaves the file as it was when it cannot."""
        packed = record.pack()
        try:
            written = os.write(self._file, packed)
            if written < len(packed):
                raise OSError(f"wrote {written} of {len(packed)} bytes to {self.path}: disk full?")
        except OSError:
            os.ftruncate(self._file, self.size_bytes)
            raise
        self.size_bytes += len(packed)

    def replace(self, records: Iterable[Record]) -> None:
        """Starts the next file with these records and drops the present one."""
        following = self._folder / NAME.format(self._number + 1)
        draft = following.with_suffix(".draft")
        with draft.open("wb") as file:
            for record in records:
                file.write(record.pack())
            file.flush()
            os.fsync(file.fileno())
        draft.rename(following)
        old_file, old_path = self._file, self.path
        self._number += 1
        self._file = _open(following)
        self.size_bytes = os.fstat(self._file).st_size
        os.close(old_file)
        old_path.unlink()

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def _cut(self, content: bytes, position: int) -> None:
        lost = len(content) - position
        kept = self.path.with_suffix(f".{position}.torn")
        kept.write_bytes(content[position:])
        log.warning("spool_cut", path=str(self.path), at=position, lost_bytes=lost, kept=str(kept))
        os.ftruncate(self._file, position)
        self.size_bytes = position


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
