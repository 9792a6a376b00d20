"""The run folder: where the state, the logs and the addresses of one local stack are.

    env            what a person or a client needs: URL, demo key, admin key
    internal.env   addresses inside the stack, for tests and benches
    secrets        passwords that must outlive a stop (the Postgres data was made with one)
    ports          which port every process has
    logs/          one file per process, rotated
    supervisord.*  the supervisor's configuration and pid

Invariant: files that hold a secret are never readable by others, not even for a moment, and a
reader never sees half of one.
"""

import fcntl
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from launcher import ports

ROOT = Path(__file__).resolve().parents[2]
MARK = "MILLRACE_RUN_DIR"
"""Every process of a stack carries this variable, so that `down` finds all of them."""
NOT_IN_A_PATH = "\"'#;\r\n"
"""Characters that supervisord's configuration cannot hold."""


class RunDirUnusable(RuntimeError):
    """The folder cannot hold a stack; the message says why."""


@dataclass(frozen=True)
class RunDir:
    """Paths in a run folder; the folder's path is absolute and without symbolic links."""

    root: Path

    @classmethod
    def at(cls, path: Path) -> "RunDir":
        """The run folder at this path, made when missing. Raises RunDirUnusable."""
        root = path.resolve()
        for place in (str(root), str(ROOT)):
            found = sorted(set(NOT_IN_A_PATH).intersection(place))
            if found:
                raise RunDirUnusable(f"{place!r} holds {found}: choose a path without them")
        root.mkdir(parents=True, exist_ok=True)
        (root / "logs").mkdir(exist_ok=True)
        return cls(root)

    @property
    def env(self) -> Path:
        """URL and keys."""
        return self.root / "env"

    @property
    def internal_env(self) -> Path:
        """Addresses inside the stack."""
        return self.root / "internal.env"

    @property
    def secrets(self) -> Path:
        """Passwords and the admin key."""
        return self.root / "secrets"

    @property
    def ports(self) -> Path:
        """Port by name."""
        return self.root / "ports"

    def log(self, process: str) -> Path:
        """The log file of a process."""
        return self.root / "logs" / f"{process}.log"

    def log_tail(self, process: str, lines: int = 15) -> str:
        """The last lines of a process's log."""
        try:
            text = self.log(process).read_text(errors="replace")
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:])

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Held while a stack starts or stops: two `up` at once would take each other's ports.

        Raises RunDirUnusable when another process holds it; the kernel releases it with its holder.
        """
        descriptor = os.open(self.root / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError as error:
            raise RunDirUnusable(
                f"another ./tools/up is starting a stack in {self.root}"
            ) from error
        finally:
            os.close(descriptor)

    def known_secrets(self) -> dict[str, str]:
        """The secrets of this run folder, made at the first call."""
        known = read_env(self.secrets)
        wanted = ("POSTGRES_PASSWORD", "SUPERVISOR_PASSWORD", "ADMIN_KEY")
        missing = {name: secrets.token_urlsafe(32) for name in wanted if name not in known}
        if missing:
            write_env(self.secrets, {**known, **missing})
        return {**known, **missing}

    def assign_ports(self, names: list[str], base: int | None) -> dict[str, int]:
        """A free port for each name, the same as last time where that is free."""
        before = self.known_ports() if base is None else {}
        kept = {
            name: before[name] for name in names if name in before and ports.is_free(before[name])
        }
        rest = [name for name in names if name not in kept]
        found = ports.free_ports(len(rest), base=base, avoid=frozenset(kept.values()))
        assigned = {**kept, **dict(zip(rest, found, strict=True))}
        write_env(self.ports, {name: str(port) for name, port in assigned.items()})
        return assigned

    def known_ports(self) -> dict[str, int]:
        """The ports of the last start; empty when there was none."""
        return {name: int(port) for name, port in read_env(self.ports).items()}


def read_env(path: Path) -> dict[str, str]:
    """NAME=value lines; empty when the file is missing."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return {}
    return dict(line.split("=", 1) for line in lines if "=" in line)


def write_env(path: Path, values: Mapping[str, str]) -> None:
    """Writes NAME=value lines, readable by the owner only, whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    descriptor = os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.writelines(f"{name}={value}\n" for name, value in values.items())
    partial.replace(path)
