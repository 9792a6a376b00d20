"""What can be configured about logs, traces and metrics: the same names in every service."""

from pathlib import Path
from typing import Literal

from pydantic_settings import BaseSettings, SettingsConfigDict


class ObserveSettings(BaseSettings):
    """Environment `OBSERVE_*`; the OTLP exporter also reads OpenTelemetry's own `OTEL_*`."""

    model_config = SettingsConfigDict(env_prefix="OBSERVE_", frozen=True)

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    """Where Prometheus scrapes; None serves no metrics, 0 takes a free port."""
    otlp_endpoint: str | None = None
    """gRPC endpoint of an OpenTelemetry collector, for example http://collector:4317."""
    trace_dir: Path | None = None
    """For local use: each process appends its spans as JSON lines to <instance>.jsonl there."""
