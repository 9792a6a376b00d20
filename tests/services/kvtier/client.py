"""A client of the tier in a process of its own, as a worker is: it may be stopped, and it may hang.

    python -m tests.services.kvtier.client CONFIG_JSON [SEGMENT_MB]

Reads one command a line and answers each by one JSON line:
    put FIRST COUNT    stores objects k<FIRST>.. of 1 MiB, each filled with its key's byte
    get FIRST COUNT    reads them in one batch into one buffer, and compares every byte
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from mooncake.store import MooncakeDistributedStore

OBJECT_BYTES = 1 << 20
BUFFER_BYTES = 64 << 20


def connect(config_path: str, segment_mb: int) -> MooncakeDistributedStore:
    """A store client by the file that workers read."""
    config = json.loads(Path(config_path).read_text())
    store = MooncakeDistributedStore()
    status = store.setup(
        "127.0.0.1",
        config["metadata_server"],
        segment_mb << 20,
        BUFFER_BYTES,
        config["protocol"],
        config["device_name"],
        config["master_server_address"],
    )
    if status != 0:
        raise SystemExit(f"expected setup to answer 0, got {status}")
    return store


def content(number: int) -> int:
    """The byte that fills object k<number>."""
    return number % 251 + 1


def put(store: MooncakeDistributedStore, first: int, count: int) -> dict[str, object]:
    """Stores the objects; counts the answers."""
    codes: dict[str, int] = {}
    for number in range(first, first + count):
        code = str(store.put(f"k{number}", bytes([content(number)]) * OBJECT_BYTES))
        codes[code] = codes.get(code, 0) + 1
    return {"codes": codes}


def get(store: MooncakeDistributedStore, first: int, count: int) -> dict[str, object]:
    """Reads the objects; counts those that were answered "ok", and those of them that are wrong."""
    buffer = np.zeros(count * OBJECT_BYTES, dtype=np.uint8)
    store.register_buffer(buffer.ctypes.data, buffer.nbytes)
    slots = [buffer[i * OBJECT_BYTES :][:OBJECT_BYTES] for i in range(count)]
    answer("reading")
    began_s = time.monotonic()
    codes = store.batch_get_into_multi_buffers(
        [f"k{number}" for number in range(first, first + count)],
        [[slot.ctypes.data] for slot in slots],
        [[OBJECT_BYTES]] * count,
    )
    took_s = time.monotonic() - began_s
    store.unregister_buffer(buffer.ctypes.data)
    wrong = sum(
        code >= 0 and not bool((slot == content(first + i)).all())
        for i, (code, slot) in enumerate(zip(codes, slots, strict=True))
    )
    ok = sum(code >= 0 for code in codes)
    return {"ok": ok, "wrong": wrong, "failed": count - ok, "took_s": round(took_s, 3)}


def answer(line: str) -> None:
    """One line to the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Answers commands until standard input ends."""
    segment_mb = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    store = connect(sys.argv[1], segment_mb)
    answer("ready")
    for line in sys.stdin:
        command, first, count = line.split()
        outcome = {"put": put, "get": get}[command](store, int(first), int(count))
        answer(json.dumps(outcome))
    os._exit(0)  # the native client may hang in its destructor


if __name__ == "__main__":
    main()
