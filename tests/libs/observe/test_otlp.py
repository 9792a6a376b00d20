"""Spans reach an OpenTelemetry collector, which is not ours and so is played at its socket."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

PROBE = """
import sys
import observe
settings = observe.ObserveSettings(otlp_endpoint=sys.argv[1])
seen = observe.setup("probe", instance="probe-1", settings=settings)
with observe.tracer().start_as_current_span("work"):
    pass
seen.close()
"""


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self):
        self.spans = []

    def Export(self, request, context):  # noqa: ARG002, N802
        for resource in request.resource_spans:
            names = {a.key: a.value.string_value for a in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [(names["service.name"], span.name) for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()


@pytest.fixture
def collector():
    server = grpc.server(ThreadPoolExecutor(max_workers=1))
    collector = Collector()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    collector.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield collector
    server.stop(None).wait()


def test_spans_are_exported_when_an_endpoint_is_configured(collector):
    subprocess.run([sys.executable, "-c", PROBE, collector.endpoint], check=True, timeout=60)

    assert collector.spans == [("probe", "work")]
