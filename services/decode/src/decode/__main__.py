"""The decode worker: one vLLM engine that pulls offered KV and generates.

All of it stands in libs/engine, which both roles share; its settings are `ENGINE_*`.
"""

from engine.serve import serve

if __name__ == "__main__":  # vLLM's child processes import this module again
    serve("decode")
