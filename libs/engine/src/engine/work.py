"""What a worker is and does now: shared by the backend, its control port and its membership."""

from dataclasses import dataclass, field

from engine.counters import EngineCounters
from engine.running import RunningRequests
from engine.settings import EngineSettings, Role


@dataclass
class Work:
    """One worker's state; changed on its event loop only."""

    settings: EngineSettings
    role: Role
    instance: str
    ipc_folder: str
    """Unix sockets of this worker's processes."""
    counters: EngineCounters = field(default_factory=EngineCounters)
    running: RunningRequests = field(default_factory=RunningRequests)
    is_draining: bool = False
