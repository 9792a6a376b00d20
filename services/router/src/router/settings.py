"""Settings of the router. Dynamo's own (`DYN_*`) are shared with the workers."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class RouterSettings(BaseSettings):
    """Environment `ROUTER_*` plus the names that every service shares."""

    model_config = SettingsConfigDict(env_prefix="ROUTER_", frozen=True, populate_by_name=True)

    http_port: int = 0
    model_dir: Path
    """Folder with the tokenizer and the chat template of the model that the workers serve."""
    model_name: str
    pool: str = "serverless"
    context_tokens: int = 8192
    """Prompt plus answer; must not exceed the workers' ENGINE_MAX_MODEL_LEN."""
    block_tokens: int = 32
    """KV block size of the workers, the unit of prefix hits."""
    local_prefill_max_tokens: int = 256
    """A prompt whose uncached rest on the chosen decode worker is this short is prefilled there:
    moving its KV would take longer than computing it."""
    session_ttl_s: float = 3600.0
    """How long a session is kept on its decode worker after its last turn."""
    max_attempts: int = 4
    """Tries of one request over workers before it fails."""
    no_worker_wait_s: float = 20.0
    """How long a request waits for a first worker while none is there (they may be restarting)."""
    default_deadline_s: float = 600.0
    tool_format: str = "auto"
    """How the model writes tool calls: a name of toolcall.formats, "none", or "auto": found in the
    chat template."""
    grammar_budget_s: float = 2.0
    """A grammar that takes longer to compile is replaced by the widest one."""

    cluster: str = Field(default="local", validation_alias="MILLRACE_CLUSTER")
    nats_url: str = Field(default="nats://127.0.0.1:4222", validation_alias="NATS_URL")
    host: str = Field(default="127.0.0.1", validation_alias="MILLRACE_HOST")
    advertise_host: str | None = Field(default=None, validation_alias="MILLRACE_ADVERTISE_HOST")
    dynamo_namespace: str = Field(default="millrace", validation_alias="DYN_NAMESPACE")
    discovery_backend: str = Field(default="file", validation_alias="DYN_DISCOVERY_BACKEND")
    request_plane: str = Field(default="tcp", validation_alias="DYN_REQUEST_PLANE")
    event_plane: str = Field(default="nats", validation_alias="DYN_EVENT_PLANE")
