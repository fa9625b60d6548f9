"""Gower's distance between many rows at once."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cel.space import FeatureSpace

__all__ = ["codes", "gower_matrix", "scaled_numbers"]


def scaled_numbers(x: np.ndarray, space: FeatureSpace) -> Tensor:
    """(n, q) numeric features in units of their ranges."""
    columns = space.numeric_columns
    width = (space.vector("upper") - space.vector("lower"))[columns]
    return torch.as_tensor(x[:, columns] / np.where(width > 0, width, 1.0), dtype=torch.float64)


def codes(x: np.ndarray, space: FeatureSpace) -> Tensor:
    """(n, c) one number per categorical feature; -1 for a block without any category."""
    parts = []
    for f in space.categorical_features:
        block = x[:, list(f.columns)]
        hot = np.where(block.max(1) > 0.5, block.argmax(1), -1)
        parts.append(hot if f.one_hot and len(f.columns) > 1 else block[:, 0])
    stacked = np.stack(parts, 1) if parts else np.zeros((len(x), 0))
    return torch.as_tensor(stacked, dtype=torch.float64)


def gower_matrix(a: np.ndarray, b: np.ndarray, space: FeatureSpace) -> np.ndarray:
    """Gower's distance of every row of `a` (n, d) to every row of `b` (m, d), shape (n, m).

    >>> gower_matrix(np.zeros((1, 2)), np.array([[1.0, 0.0]]), FeatureSpace.continuous(2))
    array([[0.5]])
    """
    total = torch.zeros(len(a), len(b), dtype=torch.float64)
    if len(space.numeric_features):
        total += torch.cdist(scaled_numbers(a, space), scaled_numbers(b, space), p=1)
    if len(space.categorical_features):
        total += torch.cdist(codes(a, space), codes(b, space), p=0)
    return (total / len(space)).numpy()
