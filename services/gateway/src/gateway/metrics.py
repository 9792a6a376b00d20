"""The gateway's Prometheus metrics. Label values are few: models of the route table, outcomes,
codes."""

from prometheus_client import Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)

REQUESTS = Counter(
    "millrace_gateway_requests",
    "Forwarded requests by how they ended",
    ["model", "endpoint", "outcome"],
)
REFUSALS = Counter(
    "millrace_gateway_refusals", "Requests answered with an error of the gateway's own", ["code"]
)
TOKENS = Counter("millrace_gateway_tokens", "Metered tokens", ["model", "kind"])
FIRST_BYTE_SECONDS = Histogram(
    "millrace_gateway_first_byte_seconds",
    "From admission to the upstream's first byte",
    ["model"],
    buckets=_SECONDS,
)
DURATION_SECONDS = Histogram(
    "millrace_gateway_duration_seconds",
    "From admission to the end of the answer",
    ["model"],
    buckets=_SECONDS,
)
UPSTREAM_ATTEMPTS = Counter(
    "millrace_gateway_upstream_attempts", "Requests sent to upstreams by result", ["result"]
)
PUBLISH_ATTEMPTS = Counter(
    "millrace_gateway_publish_attempts", "Usage batches sent to JetStream by result", ["result"]
)
IN_FLIGHT = Gauge("millrace_gateway_in_flight_requests", "Forwarded requests that have not ended")
SPOOL_BYTES = Gauge("millrace_gateway_spool_bytes", "Size of the usage spool")
SPOOL_EVENTS = Gauge("millrace_gateway_spool_waiting_events", "Usage events in no batch yet")
DIRECTORY_REVISION = Gauge("millrace_gateway_directory_revision", "Revision of the key directory")
ROUTES_VERSION = Gauge("millrace_gateway_routes_version", "Version of the route table")
