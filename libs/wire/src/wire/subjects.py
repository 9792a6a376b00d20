"""Every NATS name of the platform: streams, subjects, consumers, KV buckets and keys."""

USAGE_STREAM = "USAGE"
USAGE_SUBJECT = "millrace.v1.gateway.usage"
USAGE_STREAM_SUBJECTS = ["millrace.v1.*.usage"]
USAGE_CONSUMER = "billing"
"""All billing processes share this durable pull consumer."""

REGISTRY_BUCKET = "registry"
REGISTRY_TTL_S = 6.0
"""A process that is silent for this long is gone (three missed beats)."""
REGISTRY_BEAT_S = 2.0

CORDONS_BUCKET = "cordons"
"""Instances that get no new request; kept in a file, so it survives every restart."""


def registry_key(service: str, instance: str) -> str:
    """The key under which a process keeps its record; instances hold no dots."""
    return f"{service}.{instance}"
