"""The cluster's second KV tier: Mooncake's master and one store node, kept alive."""
