"""Exact nearest neighbours in chunks that fit in memory."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["nearest"]


def nearest(
    x: Tensor, pool: Tensor, k: int = 1, *, p: float = 2.0, chunk: int = 2**24
) -> tuple[Tensor, Tensor]:
    """Return (distances (n, k), positions (n, k)) of the k nearest rows of `pool`, nearest first.

    For k = 1 the earlier of two rows at the same distance wins; for more neighbours, rows at the
    same distance come in no particular order. At most `chunk` distances exist at a time.

    >>> d, i = nearest(torch.tensor([[0.0]]), torch.tensor([[3.0], [1.0]]))
    >>> float(d), int(i)
    (1.0, 1)
    """
    k = min(k, len(pool))
    size = max(1, chunk // max(len(pool), 1))
    distances, positions = [], []
    for part in torch.split(x, size):
        d = torch.cdist(part, pool, p=p, compute_mode="donot_use_mm_for_euclid_dist")
        value, index = d.topk(k, dim=1, largest=False, sorted=True)
        if k == 1:
            index = d.argmin(1, keepdim=True)
        distances.append(value)
        positions.append(index)
    return torch.cat(distances), torch.cat(positions)
