"""Rows that start outside a hard range: where their search begins, and which can never get in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cel.space import Feature, FeatureSpace
from cel.space.layout import TOLERANCE

__all__ = ["Starts", "starts_inside"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Starts:
    """Where the search of each row begins.

    Attributes:
        x: (n, d) the row itself, or the nearest point inside its hard ranges.
        moved: (n,) bool, whether that is another point.
        stuck: (n,) bool, rows that may not move into a hard range: no answer exists.
    """

    x: np.ndarray
    moved: np.ndarray
    stuck: np.ndarray

    @property
    def settled(self) -> np.ndarray:
        """(n,) bool: rows that need no search."""
        return self.stuck


def starts_inside(
    x: np.ndarray, space: FeatureSpace, skip: np.ndarray, reasons: np.ndarray | None
) -> Starts:
    """Move rows to the nearest point inside the hard ranges of a space.

    Args:
        x: (n, d) encoded rows.
        space: their features; only those with `hard` matter.
        skip: (n,) rows that are not searched.
        reasons: (n,) gets the reason of rows that are stuck.

    >>> space = FeatureSpace.continuous(1).with_changes(x0={"hard": True})
    >>> starts_inside(np.array([[1.5], [0.2]]), space, np.zeros(2, dtype=bool), None).x.tolist()
    [[1.0], [0.2]]
    """
    n = len(x)
    moved, stuck = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    hard = [f for f in space.numeric_features if f.hard]
    out = x.copy() if hard else x
    for f in hard:
        column = f.columns[0]
        low, high = _ends(f)
        slack = TOLERANCE * max(abs(f.lower), abs(f.upper), 1.0)
        below, above = x[:, column] < low - slack, x[:, column] > high + slack
        away = (below | above) & ~skip & ~np.isnan(x[:, column])
        barred = away & ((not f.mutable) | (below & (f.direction == "down")))
        barred |= away & above & (f.direction == "up")
        if reasons is not None:
            for row in np.flatnonzero(barred & ~stuck):
                reasons[row] = f"{f.name!r} starts outside its range and may not move into it"
        stuck |= barred
        moved |= away
        out[:, column] = np.where(away, np.where(below, low, high), out[:, column])
    return Starts(x=out, moved=moved & ~stuck, stuck=stuck)


def _ends(feature: Feature) -> tuple[float, float]:
    """Return the smallest and largest value of a feature that can be decoded."""
    low, high = feature.lower, feature.upper
    if feature.step is not None:
        step, anchor = feature.step, feature.anchor
        low = anchor + step * np.ceil((low - anchor) / step - 1e-4)
        high = anchor + step * np.floor((high - anchor) / step + 1e-4)
    return float(low), float(high)
