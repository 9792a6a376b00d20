"""A small sparse-attention model on bytes: enough that one wrong row changes every later token."""

import torch

WIDTH = 16
TOP = 6


class ToyLayers:
    """One rank's layers: rows are int8 stored as bytes, an indexer picks TOP earlier tokens."""

    def __init__(self, shape):
        make = torch.Generator().manual_seed(3)
        self.shape = shape
        self.weights = [
            [
                torch.randn(rows_in, rows_out, generator=make) / 4
                for rows_in, rows_out in (
                    (WIDTH, rows.kv_bytes),
                    (WIDTH, max(1, rows.index_bytes)),
                    (WIDTH, rows.kv_bytes),
                    (rows.kv_bytes, WIDTH),
                )
            ]
            for rows in shape.layers
        ]
        self.positions = None
        self.chosen = None

    def project(self, layer, hidden):
        kv, index, _, _ = self.weights[layer]
        has_indexer = self.shape.layers[layer].index_bytes > 0
        return _as_bytes(hidden @ kv), _as_bytes(hidden @ index) if has_indexer else None

    def select(self, layer, hidden, index):
        if index is None:  # the layer reuses what the one before chose
            return self.chosen
        scores = (hidden @ self.weights[layer][1]) @ _as_numbers(index).T
        future = torch.arange(index.shape[0])[None, :] > self.positions[:, None]
        scores = scores.masked_fill(future, -torch.inf)
        best = scores.topk(min(TOP, index.shape[0]), 1)
        self.chosen = torch.where(best.values == -torch.inf, -1, best.indices)
        return self.chosen

    def attend(self, layer, hidden, chosen, rows):
        _, _, query, out = self.weights[layer]
        picked = _as_numbers(rows[chosen.clamp(min=0)])
        scores = (picked @ (hidden @ query)[:, :, None]).squeeze(2)
        weights = scores.masked_fill(chosen < 0, -torch.inf).softmax(1)
        return torch.tanh(hidden + (weights[:, None] @ picked).squeeze(1) @ out)


def _as_bytes(values):
    return (values * 40).clamp(-127, 127).to(torch.int8).view(torch.uint8).contiguous()


def _as_numbers(rows):
    return rows.contiguous().view(torch.int8).float() / 40
