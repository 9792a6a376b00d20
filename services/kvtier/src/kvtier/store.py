"""The state folder: one owner at a time, the master's mark, and the file that workers read.

The mark is on disk before a master starts, and is closed only after that master is gone.
"""

import asyncio
import fcntl
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

import observe
from kvtier.quarantine import MasterMark
from kvtier.settings import Settings

log = observe.get_logger(__name__)

LOCK_RETRY_S = 0.2
LOCK_WARNING_EVERY = 25
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@asynccontextmanager
async def owned(folder: Path) -> AsyncIterator[None]:
    """Holds the folder, waits while another kvtier does; the kernel frees it when that dies."""
    with _lock_file(folder) as lock:
        attempts = 0
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempts % LOCK_WARNING_EVERY == 0:
                    log.warning("state_folder_in_use", folder=str(folder))
                attempts += 1
                await asyncio.sleep(LOCK_RETRY_S)
        yield


def boot_id() -> str:
    """Tells one boot of the machine from the next."""
    return BOOT_ID.read_text().strip()


def boot_clock_s() -> float:
    """Seconds since boot, sleep included: the same clock for every process of this boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def read_mark(folder: Path, lease_s: float) -> MasterMark | None:
    """The mark of the newest master, None if there never was one here.

    A mark that cannot be read counts as that of a running master with the configured lease.
    """
    try:
        text = (folder / "master.json").read_text()
    except FileNotFoundError:
        return None
    try:
        fields = json.loads(text)
        ended_at_s = fields["ended_at_s"]
        return MasterMark(
            lease_s=float(fields["lease_s"]),
            boot_id=str(fields["boot_id"]),
            ended_at_s=None if ended_at_s is None else float(ended_at_s),
        )
    except (ValueError, KeyError, TypeError) as error:
        log.error("master_mark_unreadable", folder=str(folder), error=repr(error))
        return MasterMark(lease_s, "", None)


def write_mark(folder: Path, mark: MasterMark) -> None:
    """Replaces the mark; on disk when this returns."""
    _replace(folder / "master.json", json.dumps(asdict(mark)))


def write_worker_config(settings: Settings) -> None:
    """Writes what vLLM's Mooncake connector reads; it depends on the settings alone."""
    lends = settings.worker_segment_mb > 0
    config = {
        "metadata_server": settings.metadata_url,
        "master_server_address": settings.master_address,
        "protocol": "tcp",
        "device_name": "",
        "mode": "embedded" if lends else "standalone-store",
        "global_segment_size": f"{settings.worker_segment_mb}mb" if lends else 0,
        "local_buffer_size": f"{settings.worker_buffer_mb}mb",
    }
    _replace(settings.worker_config_path, json.dumps(config, indent=2) + "\n")


def _lock_file(folder: Path) -> TextIO:
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / "lock").open("w")


def _replace(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
