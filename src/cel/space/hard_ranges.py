"""Hard ranges: which rows lie outside of them, and the nearest row inside."""

from __future__ import annotations

import numpy as np

from cel.space.feature import Feature
from cel.space.feature_space import FeatureSpace
from cel.space.layout import TOLERANCE

__all__ = ["moved_inside", "outside_hard"]


def outside_hard(x: np.ndarray, space: FeatureSpace) -> np.ndarray:
    """Tell for each row (n, d) and feature whether the row lies outside a hard range, (n, p).

    >>> space = FeatureSpace.continuous(2).with_changes(x0={"hard": True})
    >>> outside_hard(np.array([[1.5, 1.5], [0.2, 1.5]]), space).tolist()
    [[True, False], [False, False]]
    """
    out = np.zeros((len(x), len(space)), dtype=bool)
    for j, f in enumerate(space):
        if f.hard and not f.one_hot:
            low, high = _ends(f)
            slack = TOLERANCE * max(abs(f.lower), abs(f.upper), 1.0)
            value = x[:, f.columns[0]]
            out[:, j] = (value < low - slack) | (value > high + slack)
    return out


def moved_inside(x: np.ndarray, space: FeatureSpace, outside: np.ndarray) -> np.ndarray:
    """Return rows (n, d) with the features `outside` (n, p) at the nearest ends of their ranges.

    >>> space = FeatureSpace.continuous(1).with_changes(x0={"hard": True})
    >>> moved_inside(np.array([[1.5], [0.2]]), space, np.array([[True], [False]])).tolist()
    [[1.0], [0.2]]
    """
    if not outside.any():
        return x
    out = x.copy()
    for j in np.flatnonzero(outside.any(0)):
        f = space.features[j]
        column, (low, high) = f.columns[0], _ends(f)
        end = np.where(x[:, column] < low, low, high)
        out[:, column] = np.where(outside[:, j], end, out[:, column])
    return out


def _ends(feature: Feature) -> tuple[float, float]:
    """Return the smallest and largest value of a feature that can be decoded."""
    low, high = feature.lower, feature.upper
    if feature.step is not None:
        step, anchor = feature.step, feature.anchor
        low = anchor + step * np.ceil((low - anchor) / step - 1e-4)
        high = anchor + step * np.floor((high - anchor) / step + 1e-4)
    return float(low), float(high)
