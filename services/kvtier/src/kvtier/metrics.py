"""What Prometheus sees of kvtier."""

from prometheus_client import Counter, Gauge

from kvtier.stats import MasterStats

STATE = Gauge("millrace_kvtier_state", "1 for the state that the tier is in", ["state"])
CAPACITY = Gauge("millrace_kvtier_capacity_bytes", "Memory lent by node and workers")
USED = Gauge("millrace_kvtier_used_bytes", "Memory that holds objects")
OBJECTS = Gauge("millrace_kvtier_objects", "Objects stored")
CLIENTS = Gauge("millrace_kvtier_clients", "Clients of the master, the node included")
EVICTED = Gauge("millrace_kvtier_evicted_objects", "Objects evicted since the master started")
MASTER_RESTARTS = Counter("millrace_kvtier_master_restarts", "Masters started after one died")
NODE_RESTARTS = Counter("millrace_kvtier_node_restarts", "Nodes started after one died by itself")
QUARANTINES = Counter("millrace_kvtier_quarantines", "Waits for the leases of a dead master")

STATES = ("ready", "quarantined", "down")


def show_state(state: str) -> None:
    """Sets the state gauge."""
    for each in STATES:
        STATE.labels(each).set(each == state)


def show_stats(stats: MasterStats) -> None:
    """Sets the gauges to what the master just said."""
    CAPACITY.set(stats.capacity_bytes)
    USED.set(stats.used_bytes)
    OBJECTS.set(stats.objects)
    CLIENTS.set(stats.clients)
    EVICTED.set(stats.evicted_objects)
