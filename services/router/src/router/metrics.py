"""The router's Prometheus metrics."""

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter(
    "millrace_router_requests", "Requests by endpoint and outcome", ["endpoint", "outcome"]
)
RUNNING = Gauge("millrace_router_running_requests", "Requests being served now")
ATTEMPTS = Counter("millrace_router_worker_calls", "Calls to workers by step", ["step"])
MIGRATIONS = Counter(
    "millrace_router_migrations", "Requests that went on elsewhere after their worker was lost"
)
TTFT_S = Histogram(
    "millrace_router_ttft_seconds",
    "From the arrival of a request to its first token",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
PROMPT_TOKENS = Counter("millrace_router_prompt_tokens", "Prompt tokens", ["source"])
COMPLETION_TOKENS = Counter("millrace_router_completion_tokens", "Generated tokens")
CALLS = Counter("millrace_router_tool_calls", "Tool calls that passed the guard")
FAULTS = Counter(
    "millrace_router_faulty_outputs",
    "Outputs that broke the request's rules, by kind and by what was done",
    ["kind", "outcome"],
)
DISCARDED_TOKENS = Counter(
    "millrace_router_discarded_tokens", "Generated tokens that a retry threw away (not billed)"
)
GRAMMARS = Counter(
    "millrace_router_grammars",
    "Grammars by what became of them: whole, widened, over_budget, refused, unchecked",
    ["outcome"],
)
GRAMMAR_S = Histogram(
    "millrace_router_grammar_seconds",
    "Building and checking a grammar that was not kept",
    buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
UNENFORCED = Counter(
    "millrace_router_unenforced_keywords",
    "Schema keywords of declared tools that only the guard can check",
    ["keyword"],
)
