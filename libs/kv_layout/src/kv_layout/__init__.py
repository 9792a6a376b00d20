"""Where each byte of the KV cache lies, and which copies move a context from one engine to another.

arrays     the types of its arrays
layouts    the six orders of layer, block, head, token and content
caches     what is stored for one token of one layer, and how ranks share its heads
pools      one rank's memory: strides, addresses, views
regions    a pool as runs of equal stride: what an engine registers with NIXL
transfers  the copies from one pool to another for one request
runs       the longest runs that are contiguous on both sides
sources    which prefill rank a decode rank reads each head from
copying    a plan carried out between buffers of this host
models     what known models keep per token
report     a plan as a table; `python -m kv_layout plan`
errors     what can be wrong with the input
"""
