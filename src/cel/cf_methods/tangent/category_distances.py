"""Distances between categories that come from data: MVDM and ABDM.

They replace the equal distances of a one-hot code: two categories are close when the model treats
them alike (MVDM), or when the other features of their rows look alike (ABDM).
"""

from __future__ import annotations

import torch
from torch import Tensor

from cel.space import FeatureSpace

__all__ = ["abdm", "category_distances", "mvdm"]

SMOOTHING = 0.5  # added to every count of ABDM, so that an empty cell is not infinitely far


def mvdm(x: Tensor, y: Tensor, space: FeatureSpace) -> list[Tensor]:
    """Modified value difference metric: `sum_y |P(y | a) - P(y | b)|` (Cost and Salzberg, 1993).

    Args:
        x: (m, d) encoded rows.
        y: (m,) predicted class positions.
        space: the encoded features.

    Returns:
        one (k, k) matrix per one-hot feature; a category without rows is at distance 2, the
        largest possible.
    """
    classes = torch.nn.functional.one_hot(y.long()).to(x.dtype)
    out = []
    for feature in space.one_hot_features:
        counts = x[:, list(feature.columns)].T @ classes  # (k, classes)
        share = counts / counts.sum(1, keepdim=True).clamp(min=1)
        distance = (share[:, None] - share[None]).abs().sum(-1)
        empty = counts.sum(1) == 0
        unknown = (empty[:, None] | empty[None]) & ~torch.eye(len(share), dtype=torch.bool)
        out.append(torch.where(unknown, torch.full_like(distance, 2.0), distance))
    return out


def abdm(x: Tensor, space: FeatureSpace) -> list[Tensor]:
    """Association-based distance metric (Le and Ho, 2005).

    The sum, over all other features, of the symmetric Kullback-Leibler divergence between their
    distributions given a and given b; numbers are cut at their quartiles.

    Returns:
        one (k, k) matrix per one-hot feature.
    """
    cells = {f.name: _cells(x, space, f.name) for f in space}
    out = []
    for feature in space.one_hot_features:
        own = cells[feature.name]
        total = torch.zeros(own.shape[1], own.shape[1], dtype=x.dtype)
        for name, other in cells.items():
            if name == feature.name:
                continue
            counts = own.T @ other + SMOOTHING
            p = counts / counts.sum(1, keepdim=True)
            gap, ratio = p[:, None] - p[None], p.log()[:, None] - p.log()[None]
            total += (gap * ratio).sum(-1)
        out.append(total)
    return out


def category_distances(kind: str, x: Tensor, y: Tensor, space: FeatureSpace) -> Tensor:
    """Return (d, d): entry (i, j) is the distance of categories i and j of one feature, else 0.

    Distances are divided by the largest of all features, so that they live in the unit range of
    scaled numbers. `kind` is "mvdm", "abdm" or "hamming" (all categories at distance 1).
    """
    out = torch.zeros(space.width, space.width, dtype=x.dtype)
    if kind == "hamming" or not space.one_hot_features:
        parts = [1 - torch.eye(len(f.columns), dtype=x.dtype) for f in space.one_hot_features]
    else:
        parts = mvdm(x, y, space) if kind == "mvdm" else abdm(x, space)
    largest = max((float(p.max()) for p in parts), default=1.0)
    for feature, part in zip(space.one_hot_features, parts, strict=True):
        columns = torch.tensor(feature.columns)
        out[columns[:, None], columns[None]] = part / (largest if largest > 0 else 1.0)
    return out


def _cells(x: Tensor, space: FeatureSpace, name: str) -> Tensor:
    """Return (m, cells) membership of a feature's categories or quartile bins."""
    feature = space[name]
    if feature.one_hot:
        return x[:, list(feature.columns)]
    column = x[:, feature.columns[0]]
    edges = torch.quantile(column.double(), torch.tensor([0.25, 0.5, 0.75], dtype=torch.double))
    bins = torch.bucketize(column.double().contiguous(), edges)
    return torch.nn.functional.one_hot(bins, 4).to(x.dtype)
