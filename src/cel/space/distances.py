"""Row-wise distances between rows and their counterfactuals, feature by feature.

Every function maps two (n, d) matrices to (n,). A one-hot block counts as one feature. The
`*_encoded` variants count columns instead, only to be comparable with published tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from cel.space._arrays import to_tensor
from cel.space.feature_space import FeatureSpace

__all__ = [
    "changed_features",
    "changed_numbers",
    "encoded_hamming",
    "gower",
    "hamming",
    "jaccard",
    "l1",
    "l2",
    "mad",
    "mad_scale",
    "mixed",
]

CHANGE = 1e-6  # of a feature's range


def _pair(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    first = to_tensor(a)
    return first, to_tensor(b, first)


def _give(value: Tensor, like: Any) -> Any:
    return value if isinstance(like, Tensor) else value.detach().cpu().numpy()


def _numeric(space: FeatureSpace, x: Tensor) -> Tensor:
    return x[:, torch.as_tensor(space.numeric_columns, device=x.device)]


def _unit(space: FeatureSpace) -> np.ndarray:
    """(d,) range of each column; 1 where it is zero or unbounded."""
    width = space.vector("upper") - space.vector("lower")
    return np.where(np.isfinite(width) & (width > 0), width, 1.0)


def _differs(space: FeatureSpace, a: Tensor, b: Tensor) -> Tensor:
    """(n, c) bool: which categorical features differ."""
    columns = [list(f.columns) for f in space.categorical_features]
    empty = torch.zeros(len(a), 0, dtype=torch.bool, device=a.device)
    parts = [((a[:, c] - b[:, c]).abs() > 0.5).any(-1) for c in columns]
    return torch.stack(parts, -1) if parts else empty


def l1(a: Any, b: Any, space: FeatureSpace) -> Any:
    """Sum of absolute differences over numeric features."""
    x, y = _pair(a, b)
    return _give((_numeric(space, x) - _numeric(space, y)).abs().sum(-1), a)


def l2(a: Any, b: Any, space: FeatureSpace) -> Any:
    """Euclidean distance over numeric features.

    >>> l2(np.zeros((1, 2)), np.array([[3.0, 4.0]]), FeatureSpace.continuous(2))
    array([5.])
    """
    x, y = _pair(a, b)
    return _give((_numeric(space, x) - _numeric(space, y)).square().sum(-1).sqrt(), a)


def mad_scale(X: Any, space: FeatureSpace) -> np.ndarray:
    """Median absolute deviation of each column of `X` (n, d), shape (d,).

    Where it is zero the standard deviation takes its place, then the range of the feature, then 1.
    """
    x = np.asarray(X, dtype=np.float64)
    scale = np.median(np.abs(x - np.median(x, axis=0)), axis=0)
    for fallback in (x.std(axis=0), _unit(space)):
        scale = np.where(scale > 1e-12, scale, fallback)
    return np.asarray(scale)


def mad(a: Any, b: Any, space: FeatureSpace, scale: Any) -> Any:
    """Sum over numeric features of |difference| / scale, with `scale` (d,) from `mad_scale`."""
    x, y = _pair(a, b)
    unit = to_tensor(scale, x)[torch.as_tensor(space.numeric_columns, device=x.device)]
    return _give(((_numeric(space, x) - _numeric(space, y)).abs() / unit).sum(-1), a)


def hamming(a: Any, b: Any, space: FeatureSpace) -> Any:
    """Share of categorical features that differ; 0 without categorical features."""
    x, y = _pair(a, b)
    differs = _differs(space, x, y)
    return _give(differs.to(x.dtype).sum(-1) / max(differs.shape[1], 1), a)


def jaccard(a: Any, b: Any, space: FeatureSpace) -> Any:
    """Jaccard distance of the sets of (feature, category) pairs: 2c / (q + c), c of q differ."""
    x, y = _pair(a, b)
    differs = _differs(space, x, y)
    count = differs.to(x.dtype).sum(-1)
    return _give(2 * count / (differs.shape[1] + count).clamp(min=1), a)


def encoded_hamming(a: Any, b: Any, space: FeatureSpace) -> Any:
    """Share of one-hot *columns* that differ."""
    x, y = _pair(a, b)
    columns = [c for f in space.one_hot_features for c in f.columns]
    differs = (x[:, columns] - y[:, columns]).abs() > 0.5
    return _give(differs.to(x.dtype).sum(-1) / max(len(columns), 1), a)


def changed_numbers(a: Any, b: Any, space: FeatureSpace) -> Any:
    """(n, q) bool: which numeric features changed by more than 1e-6 of their range."""
    x, y = _pair(a, b)
    unit = to_tensor(_unit(space), x)
    moved = (x - y).abs() > CHANGE * unit
    return _give(_numeric(space, moved), a)


def changed_features(a: Any, b: Any, space: FeatureSpace) -> Any:
    """(n, p) bool: which features changed, in the order of the space."""
    x, y = _pair(a, b)
    numbers, labels = changed_numbers(x, y, space), _differs(space, x, y)
    categorical = torch.tensor([f.is_categorical for f in space], device=x.device)
    out = torch.zeros(len(x), len(space), dtype=torch.bool, device=x.device)
    out[:, ~categorical], out[:, categorical] = numbers, labels
    return _give(out, a)


def gower(a: Any, b: Any, space: FeatureSpace) -> Any:
    """Mean over features of |difference| / range, or inequality of categories (Gower, 1971)."""
    x, y = _pair(a, b)
    unit = to_tensor(_unit(space), x)
    numbers = _numeric(space, (x - y).abs() / unit).sum(-1)
    return _give((numbers + _differs(space, x, y).to(x.dtype).sum(-1)) / len(space), a)


def mixed(number: Any, category: Any, space: FeatureSpace) -> Any:
    """`a * number + (1 - a) * category` with a = the share of numeric features."""
    share = len(space.numeric_features) / len(space)
    return share * number + (1 - share) * category
