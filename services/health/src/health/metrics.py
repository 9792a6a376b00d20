"""What Prometheus sees of health."""

from collections import Counter as CountBy

from prometheus_client import Counter, Gauge

from millrace.v1 import fleet_pb2

SERVICES = Gauge("millrace_health_services", "Known processes by state", ["service", "state"])
CORDONED = Gauge("millrace_health_cordoned_services", "Processes that get no new request")
DEPLOYMENTS = Gauge("millrace_health_deployments", "Deployments by state", ["state"])
ROUTE_CHANGES = Counter("millrace_health_route_changes", "Route tables published")
BROKER_SYNCS = Counter(
    "millrace_health_registry_syncs", "Times the registry was read whole: start and reconnects"
)


def show(services: fleet_pb2.ServiceList, routes: fleet_pb2.RouteTable) -> None:
    """Sets the gauges to what was just published."""
    by_service = CountBy(
        (each.record.service, fleet_pb2.ServiceState.Name(each.state)) for each in services.services
    )
    SERVICES.clear()
    for (service, state), count in by_service.items():
        SERVICES.labels(service, _short(state, "SERVICE_STATE_")).set(count)
    CORDONED.set(sum(each.is_cordoned for each in services.services))
    DEPLOYMENTS.clear()
    by_state = CountBy(fleet_pb2.DeploymentState.Name(each.state) for each in routes.deployments)
    for state, count in by_state.items():
        DEPLOYMENTS.labels(_short(state, "DEPLOYMENT_STATE_")).set(count)


def _short(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).lower()
