"""OpenTelemetry spans: W3C `traceparent` in, OTLP and a local file out."""

import functools
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SimpleSpanProcessor,
)

INSTRUMENTATION_NAME = "millrace"


def configure_traces(
    service: str, instance: str, otlp_endpoint: str | None, trace_dir: Path | None
) -> TracerProvider:
    """Makes this process's tracer provider; with neither exporter spans cost almost nothing."""
    provider = TracerProvider(
        resource=Resource.create({SERVICE_NAME: service, SERVICE_INSTANCE_ID: instance})
    )
    if otlp_endpoint is not None:
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=otlp_endpoint)))
    if trace_dir is not None:
        trace_dir.mkdir(parents=True, exist_ok=True)
        # Line-buffered, kept open for the life of the process: a crash loses no finished span.
        out = (trace_dir / f"{instance}.jsonl").open("a", buffering=1, encoding="utf-8")
        provider.add_span_processor(
            SimpleSpanProcessor(ConsoleSpanExporter(out=out, formatter=_one_line))
        )
    trace.set_tracer_provider(provider)
    return provider


@functools.cache  # asking the SDK anew costs 0.1 ms; before `setup` it gives a proxy that follows
def tracer() -> trace.Tracer:
    """The tracer that every Millrace span is made with."""
    return trace.get_tracer(INSTRUMENTATION_NAME)


def inject(carrier: MutableMapping[str, str]) -> None:
    """Writes the current span as `traceparent` (and `tracestate`) into headers or metadata."""
    propagate.inject(carrier)


def extract(carrier: Mapping[str, str]) -> Context:
    """The remote parent named by `traceparent` in headers or metadata."""
    return propagate.extract(carrier)


def current_trace_id() -> str | None:
    """The trace id of the current span as 32 hexadecimal digits, None outside of any."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else None


def _one_line(span: ReadableSpan) -> str:
    return str(span.to_json(indent=None)) + "\n"
