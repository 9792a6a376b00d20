"""Header names between client, gateway and router."""

REQUEST_ID = "x-request-id"
"""In every response to a client; the same id is in traces, logs, events and the ledger."""
MILLRACE_REQUEST_ID = "x-millrace-request-id"
SESSION_ID = "x-millrace-session-id"
TEAM_ID = "x-millrace-team-id"
PRIORITY = "x-millrace-priority"
DEADLINE_MS = "x-millrace-deadline-ms"
"""Milliseconds that were left for the request when it was forwarded."""
TRACEPARENT = "traceparent"
PROMPT_TOKENS = "x-millrace-prompt-tokens"
"""In a router's response to a gateway: known before the first token, so that a prompt is metered
even when the answer breaks off."""
