"""Settings of a prefill or decode worker, beside Dynamo's (`DYN_*`) and vLLM's (`VLLM_*`)."""

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

Role = Literal["prefill", "decode"]


class EngineSettings(BaseSettings):
    """Environment `ENGINE_*` plus the names that every service shares."""

    model_config = SettingsConfigDict(env_prefix="ENGINE_", frozen=True, populate_by_name=True)

    model_dir: Path
    model_name: str
    pool: str = "serverless"
    max_model_len: int = 8192
    """Prompt plus answer, in tokens."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """float32 on CPUs: bfloat16 kernels differ between AVX-512 and AMX machines by more than the
    margin between a small model's first two candidates, so the same prompt would get different
    answers."""
    block_tokens: int = 32
    """KV block size. vLLM's CPU default of 128 would leave most short prompts without a whole
    block, and so without any prefix hit; AMX attention needs a multiple of 32."""
    max_batched_tokens: int = 1024
    """Tokens of one step: what a cancelled prefill can still waste."""
    max_running: int = 32
    """Requests in one batch."""
    kv_lease_s: int = 120
    """How long prefill holds offered blocks without a sign from decode. vLLM's default of 30 s ran
    out under load before decode had read."""
    control_port: int = 0
    mooncake_config: Path | None = Field(default=None, validation_alias="MOONCAKE_CONFIG_PATH")
    """Client configuration written by kvtier; None runs without the second tier."""

    cluster: str = Field(default="local", validation_alias="MILLRACE_CLUSTER")
    nats_url: str = Field(default="nats://127.0.0.1:4222", validation_alias="NATS_URL")
    host: str = Field(default="127.0.0.1", validation_alias="MILLRACE_HOST")
    advertise_host: str | None = Field(default=None, validation_alias="MILLRACE_ADVERTISE_HOST")
    dynamo_namespace: str = Field(default="millrace", validation_alias="DYN_NAMESPACE")
    discovery_backend: str = Field(default="file", validation_alias="DYN_DISCOVERY_BACKEND")
    request_plane: str = Field(default="tcp", validation_alias="DYN_REQUEST_PLANE")
    event_plane: str = Field(default="nats", validation_alias="DYN_EVENT_PLANE")
