"""Keeps the processes of a stack running: supervisord's configuration, start, stop and view.

supervisord (PyPI `supervisor`) restarts what dies. It listens on loopback TCP with a password, not
on a unix socket, whose path may not be longer than 107 bytes.

Invariant: a supervisord is taken for ours only when it carries this run folder's mark; a pid file
alone proves nothing.
"""

import http.client
import os
import shlex
import signal
import sys
import time
import xmlrpc.client
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher import marks
from launcher.processes import Process
from launcher.runenv import MARK, ROOT, RunDir

START_WITHIN_S = 20.0
STOP_WITHIN_S = 45.0
"""Services and workers first, all at once, then the servers."""
POLL_S = 0.05
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "USER")
USER = "millrace"


class SupervisorGone(RuntimeError):
    """supervisord did not start or does not answer any more."""


@dataclass(frozen=True)
class Status:
    """A process as supervisord sees it; pid is None while it is not running."""

    state: str
    pid: int | None


@dataclass(frozen=True)
class Supervisor:
    """The supervisord of a run folder."""

    run: RunDir
    port: int
    password: str

    def start(self, processes: Sequence[Process]) -> int:
        """Writes the configuration, starts supervisord in a session of its own and returns its pid.

        Raises SupervisorGone.
        """
        _write_private(self._config, self._configuration(processes))
        pid = self._spawn()
        deadline = time.monotonic() + START_WITHIN_S
        while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
            try:
                self.statuses()
            except SupervisorGone:
                time.sleep(POLL_S)
            else:
                return pid
        raise SupervisorGone(f"supervisord did not start:\n{self.run.log_tail('supervisord')}")

    def _spawn(self) -> int:
        env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        beside_python = str(Path(sys.executable).parent)
        env["PATH"] = f"{beside_python}:{env.get('PATH', os.defpath)}"
        env |= {MARK: str(self.run.root), "PYTHONPATH": str(ROOT / "tools")}
        log = str(self.run.log("supervisord"))
        # Not subprocess: this child is meant to outlive its parent, which Popen warns about.
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-m", "launcher.supervisord", "-c", str(self._config)],
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,  # Ctrl-C reaches `up` only, which then stops in order
        )

    def statuses(self) -> dict[str, Status]:
        """Every process by name. Raises SupervisorGone."""
        url = f"http://{USER}:{self.password}@127.0.0.1:{self.port}/RPC2"
        try:
            with xmlrpc.client.ServerProxy(url) as proxy:
                rows = proxy.supervisor.getAllProcessInfo()
        except (OSError, http.client.HTTPException, xmlrpc.client.Error) as error:
            raise SupervisorGone(f"supervisord does not answer: {error!r}") from error
        assert isinstance(rows, list)
        return {str(row["name"]): Status(str(row["statename"]), row["pid"] or None) for row in rows}

    @property
    def _config(self) -> Path:
        return self.run.root / "supervisord.conf"

    def _configuration(self, processes: Sequence[Process]) -> str:
        servers = [process.name for process in processes if process.probe is not None]
        services = [process.name for process in processes if process.probe is None]
        sections = [
            _section(
                "supervisord",
                nodaemon="true",
                silent="true",
                pidfile=str(pid_file(self.run)),
                logfile=str(self.run.log("supervisord")),
                logfile_maxbytes="5MB",
                logfile_backups="1",
                childlogdir=str(self.run.root / "logs"),
                identifier="millrace",
                **({"user": "root"} if os.geteuid() == 0 else {}),
            ),
            _section(
                "inet_http_server",
                port=f"127.0.0.1:{self.port}",
                username=USER,
                password=self.password,
            ),
            _section(
                "rpcinterface:supervisor",
                **{
                    "supervisor.rpcinterface_factory": (
                        "supervisor.rpcinterface:make_main_rpcinterface"
                    )
                },
            ),
            *(self._program(process) for process in processes),
        ]
        # Groups stop from the highest priority down, each as a whole: services end before servers.
        for name, members, priority in (("servers", servers, 100), ("services", services, 200)):
            if members:
                sections.append(
                    _section(f"group:{name}", programs=",".join(members), priority=str(priority))
                )
        return "\n".join(sections)

    def _program(self, process: Process) -> str:
        env = ",".join(f'{name}="{value}"' for name, value in sorted(process.env.items()))
        return _section(
            f"program:{process.name}",
            command=shlex.join(process.command),
            directory=str(ROOT),
            environment=env,
            autostart="true",
            autorestart="true",
            # What dies after a second is started again at once; before that, after a short wait.
            startsecs="1",
            startretries="1000000",
            stopsignal=process.stop_signal,
            stopwaitsecs=str(process.stop_wait_s),
            stopasgroup="false",
            killasgroup="true",
            redirect_stderr="true",
            stdout_logfile=str(self.run.log(process.name)),
            stdout_logfile_maxbytes="20MB",
            stdout_logfile_backups="2",
        )


def pid_file(run: RunDir) -> Path:
    """Where supervisord writes its pid."""
    return run.root / "supervisord.pid"


def running_pid(run: RunDir) -> int | None:
    """The pid of this run folder's supervisord, None when it does not run."""
    try:
        pid = int(pid_file(run).read_text())
    except (FileNotFoundError, ValueError):
        return None
    return pid if marks.carries_mark(pid, run.root) else None


def stop(run: RunDir) -> bool:
    """Lets supervisord stop everything in order; False when it did not run or took too long."""
    pid = running_pid(run)
    if pid is None:
        return False
    os.kill(pid, signal.SIGCONT)
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_WITHIN_S
    while marks.carries_mark(pid, run.root):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _section(name: str, **values: str) -> str:
    # supervisord expands %(name)s in values.
    lines = [f"{key}={value.replace('%', '%%')}" for key, value in values.items()]
    return "\n".join([f"[{name}]", *lines, ""])


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(text)
