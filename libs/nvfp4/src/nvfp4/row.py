"""Where each byte of an `nvfp4_ds_mla` row lies, and the numbers the codec's policy names.

The row is an ABI: caches, transfers and GPU kernels read it by these positions (vLLM 0.32,
`v1/attention/backends/mla/flashmla_sparse.py`). One dtype name stands for two records upstream (352
bytes here, 288 without the rope part in DeepSeek V4.1): key a cache on the row's bytes, never on
the name alone.
"""

from typing import Literal

LATENT = 512
"""Values of the MLA latent (`kv_lora_rank`), the part that is both key and value."""
ROPE = 64
"""Values of the rotary key (`qk_rope_head_dim`), shared by all heads."""
WIDTH = LATENT + ROPE
GROUP = 16
"""Latent values that share one scale."""
GROUPS = LATENT // GROUP

ROW_BYTES = 352
CODE_BYTES = slice(0, 256)
"""Two e2m1 codes in a byte; the even element is the low nibble."""
ROPE_BYTES = slice(256, 320)
"""64 e4m3 values, unscaled."""
ROW_ALIGNMENT = 16
"""Bytes. GPU kernels fetch rows by bulk copies of 16 bytes; 352 keeps every row so aligned."""


def scale_byte(group: int) -> int:
    """Byte of the e4m3 scale of `group`: groups 4 apart lie side by side, as vLLM's kernel reads
    them."""
    return 320 + 8 * (group & 3) + (group >> 2)


SCALE_BYTES = tuple(scale_byte(group) for group in range(GROUPS))

E2M1_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Value of codes 0 to 7; bit 3 of a code is the sign."""
E2M1_MAX = 6.0
E4M3_MAX = 448.0
E4M3_MAX_BYTE = 0x7E
E4M3_NAN_BYTE = 0x7F
MIN_SCALE = 2.0**-9
"""The smallest positive e4m3, so that no scale is zero and 1 / scale is finite."""
MIN_SCALE_BYTE = 0x01
LARGEST = E2M1_MAX * E4M3_MAX
"""2688: what larger values and infinities become."""

ScaleChoice = Literal["amax", "mse"]
"""How a group's scale is chosen: its largest magnitude / 6, or the best of SEARCH_STEPS around it.
"""
SEARCH_STEPS = (0, 1, 2, 3, 4, 5, 6, -1)
"""Candidates of the search in e4m3 steps from amax / 6, in the order they are tried; the first of
equal ones wins. On Gaussian groups they leave 0.0813 of the norm, all 16 useful ones 0.0812, amax /
6 0.0951."""
