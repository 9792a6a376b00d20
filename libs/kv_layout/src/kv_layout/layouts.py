"""The six physical layouts of a KV cache, under the names that vLLM 0.32 gives them.

Five axes: L layer, B block, H head, N token in the block, C content (the bytes of one head at one
token, keys and values or an MLA row). A name lists them from the outermost to the innermost; C is
always innermost. Upstream: vllm/v1/kv_cache_layout.py, `KVCacheLayout`.
"""

from enum import Enum

from kv_layout.errors import UnknownName


class KVLayout(Enum):
    """An order of the axes. Its value is its name, from the outermost axis to the innermost."""

    LBHNC = "LBHNC"
    LBNHC = "LBNHC"
    LHBNC = "LHBNC"
    BLHNC = "BLHNC"
    BLNHC = "BLNHC"
    BHLNC = "BHLNC"

    @classmethod
    def named(cls, name: str) -> "KVLayout":
        """The layout of this name; raises UnknownName."""
        if name not in cls.__members__:
            raise UnknownName("layout", name, cls.__members__)
        return cls[name]

    @property
    def is_layer_outermost(self) -> bool:
        """Each layer has memory of its own; with H = 1 and equal pages that is all there is."""
        return self.value[0] == "L"

    @property
    def is_block_outermost(self) -> bool:
        """One row holds a block's pages of every layer."""
        return self.value[0] == "B"

    @property
    def is_block_compact(self) -> bool:
        """The bytes of one layer in one block, its page, form one run."""
        return set(self.value[:2]) == {"L", "B"}
