"""Prototypes: a typical row of the target class near each row."""

from __future__ import annotations

import torch
from torch import Tensor

from cel.cf_methods.query import TrainRows

__all__ = ["encoded_prototypes", "nearest_prototypes", "squared_distances"]

CHUNK_VALUES = 2**23


def squared_distances(x: Tensor, pool: Tensor, numeric: Tensor, category: Tensor) -> Tensor:
    """Return (n, m) squared distances: numbers as they are, categories by `category` (d, d)."""
    zero = torch.zeros((), dtype=x.dtype, device=x.device)
    a, b = torch.where(numeric, x, zero), torch.where(numeric, pool, zero)
    numbers = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square()
    if bool(numeric.all()):
        return numbers
    return numbers + (x @ category.square().to(x)) @ pool.T


def nearest_prototypes(
    x: Tensor, target: Tensor, train: TrainRows, numeric: Tensor, category: Tensor, k: int = 1
) -> Tensor:
    """Return (n, d) the k-th nearest training row that the model puts into the target class.

    Rows whose target class has no training row get NaN. Ties go to the earlier row.
    """
    out = torch.full_like(x, torch.nan)
    pool, labels = train.x.to(x), train.y.to(x.device)
    for position in target.unique().tolist():
        peers = pool[labels == position]
        rows = (target == position).nonzero()[:, 0]
        if not len(peers):
            continue
        rank = min(k, len(peers))
        for part in rows.split(max(1, CHUNK_VALUES // len(peers))):
            d = squared_distances(x[part], peers, numeric, category)
            index = d.argsort(dim=1, stable=True)[:, rank - 1] if rank > 1 else d.argmin(1)
            out[part] = peers[index]
    return out


def encoded_prototypes(
    codes: Tensor, target: Tensor, pool: Tensor, labels: Tensor, k: int | None
) -> Tensor:
    """Return (n, e) means of the k nearest codes of the target class; of all of them for None.

    Args:
        codes: (n, e) codes of the rows.
        target: (n,) wanted classes.
        pool: (m, e) codes of the training rows.
        labels: (m,) their predicted classes.
        k: neighbours per prototype.
    """
    out = torch.full_like(codes, torch.nan)
    for position in target.unique().tolist():
        peers = pool[labels == position]
        rows = (target == position).nonzero()[:, 0]
        if not len(peers):
            continue
        if k is None:
            out[rows] = peers.mean(0)
            continue
        for part in rows.split(max(1, CHUNK_VALUES // len(peers))):
            d = torch.cdist(codes[part], peers)
            out[part] = peers[d.topk(min(k, len(peers)), dim=1, largest=False).indices].mean(1)
    return out
