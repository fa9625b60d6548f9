"""Clusters of GLANCE: k-means first, then the smallest joins the most similar, again and again."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.edits import Price
from cel.space import FeatureSpace

__all__ = ["Clusters", "centroid", "first_clusters", "merge_clusters"]


def centroid(x: Tensor, space: FeatureSpace) -> Tensor:
    """Return (d,) the mean of the numbers and the most frequent level of each category."""
    mean = x.mean(0)
    for f in space.one_hot_features:
        columns = list(f.columns)
        level = int(mean[columns].argmax())
        mean[columns] = torch.nn.functional.one_hot(torch.tensor(level), len(columns)).to(mean)
    return mean


def first_clusters(x: Tensor, count: int, seed: int) -> np.ndarray:
    """Return cluster labels (n,) of rows by k-means on encoded columns."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    rows = x.double().cpu().numpy()
    count = min(count, len(np.unique(rows, axis=0)))
    if count == len(rows):
        return np.arange(len(rows))
    with warnings.catch_warnings():
        # Rows that differ by rounding only may leave clusters empty, which does no harm.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = KMeans(count, n_init=1, max_iter=50, random_state=seed).fit_predict(rows)
    return np.asarray(np.unique(found, return_inverse=True)[1])


@dataclass(frozen=True, kw_only=True, eq=False)
class Clusters:
    """Final clusters: label of every row, label of every counterfactual, and the merges made."""

    rows: np.ndarray
    points: np.ndarray
    merges: list[tuple[int, int]]


def merge_clusters(
    x: Tensor,
    labels: np.ndarray,
    points: Tensor,
    owners: np.ndarray,
    count: int,
    space: FeatureSpace,
    price: Price,
    weights: tuple[float, float] = (0.5, 0.5),
) -> Clusters:
    """Merge clusters until `count` are left.

    The smallest cluster (the first of equals) joins the one with the least
    `w1 * cost(centroids) + w2 * cost(centroids of counterfactuals)`. Rows (n, d) and
    counterfactuals (a, d) come with the number 0..k-1 of their cluster; every cluster has both.
    """
    labels, owners = labels.copy(), owners.copy()
    alive = np.ones(int(labels.max()) + 1, dtype=bool)
    size = np.bincount(labels, minlength=len(alive))
    homes = torch.stack([centroid(x[labels == k], space) for k in range(len(alive))])
    aims = torch.stack([centroid(points[owners == k], space) for k in range(len(alive))])
    merges = []
    while alive.sum() > count:
        small = int(np.flatnonzero(alive)[size[alive].argmin()])
        gap = weights[0] * price(homes[small], homes) + weights[1] * price(aims[small], aims)
        gap[torch.as_tensor(~alive | (np.arange(len(alive)) == small))] = torch.inf
        big = int(gap.argmin())
        merges.append((small, big))
        labels[labels == small], owners[owners == small] = big, big
        size[big] += size[small]
        alive[small] = False
        homes[big] = centroid(x[labels == big], space)
        aims[big] = centroid(points[owners == big], space)
    final = np.cumsum(alive) - 1
    return Clusters(rows=final[labels], points=final[owners], merges=merges)
