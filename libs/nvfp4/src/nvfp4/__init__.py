"""The `nvfp4_ds_mla` row of 352 bytes: one token's MLA latent at four bits, its rope part at eight.

`golden` defines every byte in plain torch, `native` does the same fast on a CPU, `calibrate` and
`fold` make the row lose less at the same size. Nothing is compiled or loaded before the first
native call.
"""
