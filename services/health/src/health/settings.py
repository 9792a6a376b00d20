"""What can be configured about health: environment `HEALTH_*` and the names all services share."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Read once at start."""

    model_config = SettingsConfigDict(env_prefix="HEALTH_", frozen=True)

    grpc_port: int = Field(default=0, ge=0, le=65535)
    """Where `Fleet` is served; 0 takes a free port."""

    cluster: str = Field(default="local", validation_alias="MILLRACE_CLUSTER")
    nats_url: str = Field(default="nats://127.0.0.1:4222", validation_alias="NATS_URL")
    host: str = Field(default="127.0.0.1", validation_alias="MILLRACE_HOST")
    advertise_host: str = Field(default="", validation_alias="MILLRACE_ADVERTISE_HOST")
    """The address others reach this process at; empty means the bind address."""

    @property
    def reachable_host(self) -> str:
        """What goes into the registry."""
        return self.advertise_host or self.host
