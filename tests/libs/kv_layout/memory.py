"""A pool's memory written the slow way: straight from what a layout's name says, without strides.

This is the reference that plans and addresses are compared with, so nothing of `kv_layout` that
computes an address may be used here.
"""

from itertools import product

import numpy as np


def lay_out(pool, heads, value, padding):
    """The bytes of a pool, uint8 [n].

    heads: how many of each cache this rank holds, by cache name. value(cache, layer, block, head,
    token): the content's bytes. padding: the byte that stands between pages or rows.
    """
    memory = bytearray()
    name = pool.layout.name

    def write(cache, **fixed):
        """Every content of the cache with these indices, in the order of the layout's letters."""
        counts = {
            "L": cache.layers,
            "B": pool.blocks,
            "H": heads[cache.name],
            "N": pool.block_tokens,
        }
        ranges = [
            [fixed[letter]] if letter in fixed else range(counts[letter]) for letter in name[:4]
        ]
        for indices in product(*ranges):
            at = dict(zip(name[:4], indices, strict=True))
            memory.extend(value(cache, at["L"], at["B"], at["H"], at["N"]))

    def pad():
        while len(memory) % pool.block_alignment:
            memory.append(padding)

    if name.startswith("B"):
        for block in range(pool.blocks):
            for cache in pool.caches:
                write(cache, B=block)
            pad()
    elif name.startswith("LB"):
        for cache in pool.caches:
            for layer, block in product(range(cache.layers), range(pool.blocks)):
                write(cache, L=layer, B=block)
                pad()
    else:
        for cache in pool.caches:
            write(cache)
    return np.frombuffer(bytes(memory), dtype=np.uint8).copy()
