"""What a KV layout costs between two real engines, and what LayerSplit stores and moves."""
