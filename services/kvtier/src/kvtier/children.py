"""Mooncake's master and our store node as child processes: command lines, start, stop.

A child dies with kvtier (`leash.py`). Its own lines are not JSON: they go to a file in the state
folder.
"""

import asyncio
import ipaddress
import os
import shutil
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from kvtier.errors import MasterBinaryMissing
from kvtier.settings import Settings

STOP_GRACE_S = 1.5
"""Master and node each get this long after SIGTERM; both together stay below a clean stop's 5 s."""
CLIENT_TTL_S = 10
"""The master unmounts the memory of a client that is silent for this long."""
EVICT_ABOVE = 0.8
"""Share of the memory from which the master evicts; room for a burst of puts while it does."""


async def start_master(settings: Settings) -> Process:
    """Mooncake's master with its HTTP metadata server."""
    beside_python = Path(sys.executable).parent
    program = shutil.which("mooncake_master", path=f"{beside_python}:{os.environ.get('PATH', '')}")
    if program is None:
        raise MasterBinaryMissing
    return await _start(
        settings,
        "master",
        program,
        f"--rpc_address={settings.host}",
        f"--rpc_port={settings.master_port}",
        f"--metrics_host={settings.host}",
        f"--metrics_port={settings.master_metrics_port}",
        "--enable_http_metadata_server=true",
        f"--http_metadata_server_host={settings.host}",
        f"--http_metadata_server_port={settings.metadata_port}",
        # A dead client's addresses must not be found by name any more once its memory is unmounted.
        "--enable_metadata_cleanup_on_timeout=true",
        f"--default_kv_lease_ttl={int(settings.lease_s * 1000)}ms",
        f"--client_ttl={CLIENT_TTL_S}",
        f"--eviction_high_watermark_ratio={EVICT_ABOVE}",
        "--enable_metric_reporting=false",
        "--minloglevel=1",
    )


async def start_node(settings: Settings) -> Process:
    """Our store node; it prints one line when its memory is mounted."""
    return await _start(settings, "node", sys.executable, "-m", "kvtier.node")


async def stop(process: Process) -> None:
    """SIGTERM, and SIGKILL for what does not listen; returns when the process is gone."""
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(STOP_GRACE_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _start(settings: Settings, name: str, program: str, *arguments: str) -> Process:
    path = settings.state_dir / f"{name}.log"
    if path.exists():
        path.replace(path.with_suffix(".log.1"))
    leash = [sys.executable, "-m", "kvtier.leash", str(os.getpid())]
    with path.open("ab") as log_file:
        return await asyncio.create_subprocess_exec(
            *leash,
            program,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE if name == "node" else log_file,
            stderr=log_file,
            env=_environment(settings),
        )


def _environment(settings: Settings) -> dict[str, str]:
    """Ours; the node tells its peers the advertised address, not that of some interface."""
    try:
        ipaddress.ip_address(settings.reachable_host)
    except ValueError:  # a name: Mooncake takes the interface's address itself
        return dict(os.environ)
    return {**os.environ, "MC_TCP_BIND_ADDRESS": settings.reachable_host}
