"""Logging, tracing and metrics of a process, set up by one call.

    observability = observe.setup("gateway", instance="gateway-1",
    settings=observe.ObserveSettings()) log = observe.get_logger(__name__) with
    observe.tracer().start_as_current_span("relay"): ... observability.close()

Logs are JSON lines on standard error, each with the service, the instance and, inside a span, the
trace and span ids. Spans go to the OTLP endpoint and to the trace file when these are configured.
Metrics are served for Prometheus on the metrics port.
"""

from observe.logs import configure_logs, get_logger
from observe.settings import ObserveSettings
from observe.setup import Observability, setup
from observe.traces import current_trace_id, extract, inject, tracer

__all__ = [
    "Observability",
    "ObserveSettings",
    "configure_logs",
    "current_trace_id",
    "extract",
    "get_logger",
    "inject",
    "setup",
    "tracer",
]
