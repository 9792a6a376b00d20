"""The nvfp4_ds_mla row of 352 bytes, as vLLM 0.32 defines it (flashmla_sparse.py).

    [0, 256)    512 e2m1 latent values, two a byte, the even one in the low nibble
    [256, 320)  64 e4m3 rope values without a scale
    [320, 352)  32 e4m3 scales, one for 16 latent values; group g's at 320 + 8 (g & 3) + (g >> 2)

The dtype's name is shared with a 288-byte record of another model: key on the bytes, not the name.
"""

ROW_BYTES = 352
LATENT, ROPE, GROUP = 512, 64, 16
HEAD_SIZE = LATENT + ROPE
ROPE_AT, SCALES_AT = 256, 320

STAGE_SLOTS = 32
"""Slots the kernel takes at a time (`kStage` in shapes.h)."""
MAX_CLUSTER_BLOCKS = 8
"""The largest cluster every Hopper and Blackwell GPU accepts without asking."""
MAX_CLUSTER_ROWS = 64
"""Query rows (token, head) that one cluster can serve: four tiles of 16."""
MAX_HEADS = 128
MAX_FUSED_TOKENS = 31
"""Bits of a slot's mask that are used; the sign bit of its int32 is not."""


def tiles_for(query_rows: int) -> int:
    """Tiles of 16 query rows a cluster gets: 1, 2 or 4, the kernel's three variants."""
    return 1 if query_rows <= 16 else 2 if query_rows <= 32 else 4
