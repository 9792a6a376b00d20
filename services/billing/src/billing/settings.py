"""What can be configured about billing: `BILLING_*` and the names that all services share."""

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Read once at start."""

    model_config = SettingsConfigDict(env_prefix="BILLING_", frozen=True)

    database_url: SecretStr
    """postgresql+asyncpg://user:password@host:port/database; the database must exist."""
    admin_key_sha256: str = Field(pattern="^[0-9a-f]{64}$")
    """Of the key that the admin API asks for; the key itself is not known here."""
    grpc_port: int = Field(default=0, ge=0, le=65535)
    http_port: int = Field(default=0, ge=0, le=65535)
    ack_wait_s: float = Field(default=10.0, gt=0)
    """After this long the broker gives a batch that a dead process held to another one."""

    cluster: str = Field(default="local", validation_alias="MILLRACE_CLUSTER")
    nats_url: str = Field(default="nats://127.0.0.1:4222", validation_alias="NATS_URL")
    host: str = Field(default="127.0.0.1", validation_alias="MILLRACE_HOST")
    advertise_host: str = Field(default="", validation_alias="MILLRACE_ADVERTISE_HOST")
    """The address others reach this process at; empty means the bind address."""

    @property
    def reachable_host(self) -> str:
        """What goes into the registry."""
        return self.advertise_host or self.host
