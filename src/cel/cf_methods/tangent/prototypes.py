"""Prototypes: a typical row of the target class near each row."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["encoded_prototypes", "kth_nearest", "nearest_rows", "squared_distances"]

CHUNK_VALUES = 2**23


def squared_distances(x: Tensor, pool: Tensor, numeric: Tensor, category: Tensor) -> Tensor:
    """Return (n, m) squared distances: numbers as they are, categories by `category` (d, d)."""
    zero = torch.zeros((), dtype=x.dtype, device=x.device)
    a, b = torch.where(numeric, x, zero), torch.where(numeric, pool, zero)
    numbers = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square()
    if bool(numeric.all()):
        return numbers
    return numbers + (x @ category.square().to(x)) @ pool.T


def nearest_rows(
    x: Tensor,
    target: Tensor,
    pool: Tensor,
    labels: Tensor,
    numeric: Tensor,
    category: Tensor,
    count: int = 1,
) -> Tensor:
    """Return (n, count, d) the nearest rows of the pool that have the target class.

    Args:
        x: (n, d) rows.
        target: (n,) wanted classes.
        pool: (m, d) rows to choose from.
        labels: (m,) their classes.
        numeric: (d,) bool.
        category: (d, d) distances between categories.
        count: rows to return, nearest first; NaN where there are not so many. Ties go to the
            earlier row.
    """
    out = torch.full((len(x), count, x.shape[1]), torch.nan, dtype=x.dtype, device=x.device)
    pool, labels = pool.to(x), labels.to(x.device)
    for position in torch.unique(target).tolist():
        peers = pool[labels == position]
        rows = (target == position).nonzero()[:, 0]
        if not len(peers):
            continue
        k = min(count, len(peers))
        for part in rows.split(max(1, CHUNK_VALUES // len(peers))):
            d = squared_distances(x[part], peers, numeric, category)
            out[part, :k] = peers[d.argmin(1, keepdim=True) if k == 1 else _smallest(d, k)]
    return out


def _smallest(d: Tensor, k: int) -> Tensor:
    """Return (n, k) columns of the smallest entries of each row, ties in order of columns.

    The same as a stable sort of everything, which is needed only where the last place is tied.
    """
    value, index = d.topk(min(k + 1, d.shape[1]), dim=1, largest=False)
    chosen = index[:, :k].sort(dim=1).values
    chosen = chosen.gather(1, d.gather(1, chosen).argsort(dim=1, stable=True))
    tied = (value[:, k - 1] == value[:, -1]).nonzero()[:, 0] if d.shape[1] > k else index[:0, 0]
    if len(tied):
        chosen[tied] = d[tied].argsort(dim=1, stable=True)[:, :k]
    return chosen


def kth_nearest(
    x: Tensor,
    classes: Tensor,
    pool: Tensor,
    labels: Tensor,
    numeric: Tensor,
    category: Tensor,
    k: int,
) -> Tensor:
    """Return (n, d) the k-th nearest row of a class, the last one there is, or the row itself."""
    rows = nearest_rows(x, classes, pool, labels, numeric, category.to(x), k)
    last = (~rows.isnan().any(-1)).sum(1).clamp(min=1) - 1
    chosen = rows[torch.arange(len(x), device=x.device), last]
    return torch.where(chosen.isnan(), x, chosen)


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
    for position in torch.unique(target).tolist():
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
