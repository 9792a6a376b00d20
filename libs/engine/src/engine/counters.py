"""What the engine did since it started, taken from vLLM's stats after every step.

vLLM's own Prometheus metrics are served beside these; here stand the few figures that status calls
and tests ask for, under names that do not change with vLLM's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import Counter

KV_BYTES = Counter(
    "millrace_engine_kv_transfer_bytes",
    "KV bytes moved, by path: nixl_pull, kvtier_store, kvtier_load",
    ["path"],
)
KV_FAILURES = Counter(
    "millrace_engine_kv_transfer_failures",
    "KV operations that failed, by path: nixl_pull, nixl_lease_expired, kvtier",
    ["path"],
)
NIXL_FAILURES = ("num_failed_transfers", "num_failed_notifications", "num_failed_handshakes")


@dataclass
class EngineCounters:
    """Running totals; changed only by `record`, on the engine's event loop."""

    kv_blocks_total: int = 0
    kv_blocks_used: int = 0
    running_requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    nixl_bytes_pulled: int = 0
    nixl_descriptors: int = 0
    nixl_failures: int = 0
    nixl_leases_expired: int = 0
    kvtier_bytes_stored: int = 0
    kvtier_bytes_loaded: int = 0
    kvtier_failures: int = 0

    def record(self, scheduler_stats: Any | None, iteration_stats: Any | None) -> None:
        """Adds one step's SchedulerStats and IterationStats (vllm/v1/metrics/stats.py, 0.32)."""
        if iteration_stats is not None:
            self.prompt_tokens += iteration_stats.prompt_token_stats.total
            self.cached_tokens += iteration_stats.prompt_token_stats.cached_tokens
            self.generated_tokens += iteration_stats.num_generation_tokens
        if scheduler_stats is None:
            return
        self.running_requests = scheduler_stats.num_running_reqs + scheduler_stats.num_waiting_reqs
        self.kv_blocks_used = round(scheduler_stats.kv_cache_usage * self.kv_blocks_total)
        for connector, stats in _by_connector(scheduler_stats.kv_connector_stats or {}).items():
            if connector.startswith("Nixl"):
                self._record_nixl(stats)
            else:
                self._record_kvtier(stats)

    def _record_nixl(self, stats: Mapping[str, list[float]]) -> None:
        pulled = int(sum(stats.get("bytes_transferred", ())))
        failures = sum(len(stats.get(name, ())) for name in NIXL_FAILURES)
        expired = len(stats.get("num_kv_expired_reqs", ()))
        self.nixl_bytes_pulled += pulled
        self.nixl_descriptors += int(sum(stats.get("num_descriptors", ())))
        self.nixl_failures += failures
        self.nixl_leases_expired += expired
        KV_BYTES.labels("nixl_pull").inc(pulled)
        KV_FAILURES.labels("nixl_pull").inc(failures)
        KV_FAILURES.labels("nixl_lease_expired").inc(expired)

    def _record_kvtier(self, stats: Mapping[str, list[Mapping[str, Any]]]) -> None:
        for operation, calls in stats.items():
            moved = sum(int(call.get("num_bytes", 0)) for call in calls)
            failures = sum(int(call.get("num_failed_keys", 0)) for call in calls)
            self.kvtier_failures += failures
            KV_FAILURES.labels("kvtier").inc(failures)
            if operation.startswith("save"):
                self.kvtier_bytes_stored += moved
                KV_BYTES.labels("kvtier_store").inc(moved)
            elif operation.startswith("load"):
                self.kvtier_bytes_loaded += moved
                KV_BYTES.labels("kvtier_load").inc(moved)


def _by_connector(stats: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """MultiConnector nests a dict per connector; a single NIXL connector does not."""
    if "bytes_transferred" in stats:
        return {"Nixl": stats}
    return {name: value for name, value in stats.items() if isinstance(value, Mapping)}


def stat_logger(counters: EngineCounters, publish: Any) -> Any:
    """A vLLM stat logger factory that feeds `counters` and then calls `publish()`."""
    from vllm.v1.metrics.loggers import StatLoggerBase

    class CountingLogger(StatLoggerBase):  # type: ignore[misc]  # vLLM is not typed here
        """Feeds the counters of this process after every engine step."""

        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:  # noqa: ARG002
            counters.kv_blocks_total = vllm_config.cache_config.num_gpu_blocks or 0

        def log_engine_initialized(self) -> None:
            """Nothing to say: the worker logs its own start."""

        def record(self, scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any) -> None:
            counters.record(scheduler_stats, iteration_stats)
            publish()

    return CountingLogger
