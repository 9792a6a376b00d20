"""Free TCP ports for servers on this machine.

Ports are taken below the range from which the kernel serves outgoing connections. A listening port
inside that range can be lost while its process restarts: any client may be given it as its source
port, and a client that keeps trying to connect can even be connected to itself.
"""

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 10_240
"""Well-known and commonly used ports are below."""
EPHEMERAL_DEFAULT = 32_768


_given_out: set[int] = set()
"""Whoever asked for them may not listen on them yet."""


class NoFreePorts(RuntimeError):
    """Fewer ports are free than were asked for."""


def free_ports(
    count: int, *, base: int | None = None, avoid: frozenset[int] = frozenset()
) -> list[int]:
    """That many different ports on which nobody listens, counted up from `base` or a random place.

    Raises NoFreePorts.
    """
    found: list[int] = []
    for port in _candidates(base):
        if len(found) == count:
            break
        if port not in avoid and is_free(port):
            found.append(port)
    if len(found) < count:
        raise NoFreePorts(f"expected {count} free ports, found {len(found)}")
    return found


def free_port() -> int:
    """One port on which nobody listens, and none that this process was given before."""
    port = free_ports(1, avoid=frozenset(_given_out))[0]
    _given_out.add(port)
    return port


def is_free(port: int) -> bool:
    """True when a server could listen on the port, on loopback and on every address."""
    for host in ("127.0.0.1", "0.0.0.0"):
        try:
            with listening(port, host):
                continue
        except OSError:
            return False
    return True


@contextmanager
def listening(port: int, host: str = "127.0.0.1") -> Iterator[None]:
    """Holds the port as a server does. Raises OSError when it is taken."""
    with socket.socket() as server:
        # As servers do it: connections of the last owner in TIME_WAIT are no obstacle.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, port))
        server.listen(1)
        yield


def is_listening(port: int) -> bool:
    """True when something accepts connections on the port of the loopback address."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _candidates(base: int | None) -> Iterator[int]:
    if base is not None:
        yield from range(base, 65_536)
        return
    highest = _ephemeral_start()
    start = random.randrange(LOWEST, highest)
    yield from range(start, highest)
    yield from range(LOWEST, start)


def _ephemeral_start() -> int:
    try:
        start = int(EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return EPHEMERAL_DEFAULT
    return start if start > LOWEST + 1_000 else EPHEMERAL_DEFAULT
