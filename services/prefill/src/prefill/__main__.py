"""The prefill worker: one vLLM engine that computes prompts and offers their KV.

All of it stands in libs/engine, which both roles share; its settings are `ENGINE_*`.
"""

from engine.serve import serve

if __name__ == "__main__":  # vLLM's child processes import this module again
    serve("prefill")
