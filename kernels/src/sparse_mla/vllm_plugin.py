"""The entry point (group `vllm.general_plugins`) by which every vLLM process finds the backend.

Registering only names the backend: `--attention-backend MILLRACE_SPARSE_MLA` selects it, and
automatic selection, whose order vLLM keeps to itself, does not. The class is imported when it is
selected.
"""

NAME = "MILLRACE_SPARSE_MLA"
BACKEND = "sparse_mla.vllm_backend.SparseMlaBackend"


def register() -> None:
    """Called by vLLM, more than once in a process that starts others."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    if NAME not in AttentionBackendEnum.__members__:
        register_backend(NAME, BACKEND)
