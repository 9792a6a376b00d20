"""The OpenAI wire inside a cluster: rendering, KV-aware choice, prefill then decode, text out."""
