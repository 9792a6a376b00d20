"""What can be configured about kvtier: environment `KVTIER_*` and the names all services share."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Read once at start, by kvtier and by its node."""

    model_config = SettingsConfigDict(env_prefix="KVTIER_", frozen=True)

    master_port: int = Field(ge=1, le=65535)
    """Mooncake's master. Fixed, not 0: the workers' file names it before the master runs."""
    metadata_port: int = Field(ge=1, le=65535)
    """Mooncake's HTTP metadata server; it listens on every interface (0.3.13 ignores the host)."""
    master_metrics_port: int = Field(ge=1, le=65535)
    grpc_port: int = Field(default=0, ge=0, le=65535)
    """Where `KvTier` is served; 0 takes a free port."""
    state_dir: Path
    """Keeps the mark that the quarantine is computed from; must live as long as any worker does."""
    lease_s: float = Field(default=10.0, ge=1.0)
    """How long a reader may trust an object's memory after it asked; also the quarantine. Longer
    than the longest batch read: one that outlasts it fails (-707) and is recomputed."""
    segment_mb: int = Field(default=256, ge=16)
    """Host memory that the store node lends; it is taken from the machine as it fills."""
    worker_segment_mb: int = Field(default=64, ge=0)
    """Host memory that each worker lends; 0 leaves all storing to the node."""
    worker_buffer_mb: int = Field(default=128, ge=16)
    """Each worker's staging buffer for transfers."""

    cluster: str = Field(default="local", validation_alias="MILLRACE_CLUSTER")
    nats_url: str = Field(default="nats://127.0.0.1:4222", validation_alias="NATS_URL")
    host: str = Field(default="127.0.0.1", validation_alias="MILLRACE_HOST")
    advertise_host: str = Field(default="", validation_alias="MILLRACE_ADVERTISE_HOST")
    """The address others reach this process at; empty means the bind address."""

    @property
    def reachable_host(self) -> str:
        """What goes into the registry and into the workers' file."""
        return self.advertise_host or self.host

    @property
    def metadata_url(self) -> str:
        """Where Mooncake's clients find each other."""
        return f"http://{self.reachable_host}:{self.metadata_port}/metadata"

    @property
    def master_address(self) -> str:
        """Where Mooncake's clients find the master."""
        return f"{self.reachable_host}:{self.master_port}"

    @property
    def worker_config_path(self) -> Path:
        """The file that MOONCAKE_CONFIG_PATH of every worker names."""
        return self.state_dir / "mooncake.json"
