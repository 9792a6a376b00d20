"""vLLM's AsyncLLM as a Dynamo backend with a role, for the `prefill` and `decode` services.

serve        the process: settings, logs, Dynamo's worker around the backend
backend      the backend: start the engine, generate, abort, clean up
engine_args  vLLM's configuration: KV connectors, KV events, sizes
requests     Dynamo's request to vLLM's sampling parameters, and the KV handoff
counters     what the engine did, from vLLM's stats
control      the WorkerControl gRPC service: status, drain, abort
membership   heartbeat and liveness: a worker whose engine died must not stay registered
grammars     two things that vLLM's grammars must do for ours, as a vLLM plugin
packed_blocks  block-major KV on the CPU backend, as a vLLM plugin
cpu_fixes    four defects of the stack on CPU, answered until upstream does
"""
