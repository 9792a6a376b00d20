"""Context-parallel prefill in which each rank stores the KV of some layers only.

prefill     the loop over layers: project, append, fetch, select, attend
cache       the split cache: rows at their owner, broadcasts into two slots
groups      the process groups its rows travel in, made once for many requests
replicated  the same interface with every row on every rank: the reference
rows        what a layer stores per token, who owns which layer, who computes which tokens
traffic     bytes stored and received
errors      what can go wrong
"""
