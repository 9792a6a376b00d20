"""The store node, a process of its own: lends host memory to the tier until it is told to stop.

Its own process, because Mooncake's client runs many native threads and may hang in its destructor
once its master is gone: it leaves by `os._exit`.
"""

import os
import signal
import sys

from kvtier.errors import NodeNotMounted
from kvtier.settings import Settings

MOUNTED = b"mounted\n"
BUFFER_BYTES = 16 << 20
"""Mooncake wants a transfer buffer even from a client that only lends; it is never touched."""
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}


def main() -> None:
    """Mounts the segment, says so on standard output, and waits for a signal."""
    # Before the native threads start, so that none of them takes the signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    settings = Settings()  # type: ignore[call-arg]  # filled from the environment
    from mooncake.store import MooncakeDistributedStore  # loads the native library

    store = MooncakeDistributedStore()
    status = store.setup(
        settings.reachable_host,
        settings.metadata_url,
        settings.segment_mb << 20,
        BUFFER_BYTES,
        "tcp",
        "",
        settings.master_address,
    )
    if status != 0:
        sys.stderr.write(f"{NodeNotMounted(status, settings.master_address)}\n")
        sys.stderr.flush()
        os._exit(1)
    os.write(sys.stdout.fileno(), MOUNTED)
    signal.sigwait(STOP_SIGNALS)
    store.close()
    os._exit(0)


if __name__ == "__main__":
    main()
