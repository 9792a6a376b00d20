"""The one call that gives a process its logs, traces and metrics."""

from dataclasses import dataclass

from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import start_http_server

from observe.logs import configure_logs
from observe.settings import ObserveSettings
from observe.traces import configure_traces


@dataclass(frozen=True)
class Observability:
    """What was set up; `metrics_url` goes into the process's registry record."""

    tracer_provider: TracerProvider
    metrics_url: str

    def close(self) -> None:
        """Exports the spans that are still waiting."""
        self.tracer_provider.shutdown()


def setup(service: str, *, instance: str, settings: ObserveSettings) -> Observability:
    """Sets up logs, traces and metrics of this process; call it once, before anything logs."""
    configure_logs(service, instance, settings.log_level)
    provider = configure_traces(service, instance, settings.otlp_endpoint, settings.trace_dir)
    metrics_url = ""
    if settings.metrics_port is not None:
        server, _ = start_http_server(settings.metrics_port, addr=settings.metrics_host)
        metrics_url = f"http://{settings.metrics_host}:{server.server_port}/metrics"
    return Observability(provider, metrics_url)
