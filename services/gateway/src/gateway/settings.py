"""What can be configured about the gateway: environment `GATEWAY_*` and the names all services
share."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Read once at start; the defaults suit a laptop."""

    model_config = SettingsConfigDict(env_prefix="GATEWAY_", frozen=True)

    cluster: str = Field(default="local", validation_alias="MILLRACE_CLUSTER")
    nats_url: str = Field(default="nats://127.0.0.1:4222", validation_alias="NATS_URL")
    host: str = Field(default="127.0.0.1", validation_alias="MILLRACE_HOST")
    advertise_host: str = Field(default="", validation_alias="MILLRACE_ADVERTISE_HOST")
    """The address others reach this process at; empty means the bind address."""
    billing_target: str = Field(default="127.0.0.1:7401", validation_alias="BILLING_TARGET")
    health_target: str = Field(default="127.0.0.1:7301", validation_alias="HEALTH_TARGET")

    http_port: int = Field(default=8000, ge=0, le=65535)
    """0 takes a free port; the log line `serving` names it."""

    max_body_bytes: int = Field(default=8 << 20, gt=0)
    body_timeout_s: float = Field(default=60.0, gt=0)
    """For a client to send its whole request."""
    max_in_flight: int = Field(default=4096, gt=0)
    """Completions at one time; each holds one slot of the progress file (40 bytes)."""

    request_timeout_s: float = Field(default=600.0, gt=0)
    """From admission to the last byte; the router is told what is left of it."""
    upstream_connect_timeout_s: float = Field(default=2.0, gt=0)
    upstream_silence_s: float = Field(default=300.0, gt=0)
    """Of a stream, before its first byte and between two: an upstream that is silent for longer has
    failed. A whole answer is silent until it is complete, so only the request's time limits it."""
    failover_window_s: float = Field(default=20.0, ge=0)
    """How long a request may wait for an upstream; a restarting router is back within it."""
    cancel_wait_s: float = Field(default=5.0, ge=0)
    """How long a cancelled upstream is still read, to learn its exact usage."""

    spool_dir: Path = Path(".run/gateway-spool")
    spool_max_bytes: int = Field(default=256 << 20, gt=4096)
    """About half a million requests that JetStream has not taken yet; beyond it the gateway
    refuses."""
    drain_s: float = Field(default=2.0, ge=0)
    """After SIGTERM: how long running requests may go on before they are ended with an error
    event."""

    @property
    def reachable_host(self) -> str:
        """What goes into the registry."""
        return self.advertise_host or self.host
