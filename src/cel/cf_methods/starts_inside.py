"""Rows that start outside a hard range: where their search begins, and which can never get in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cel.space import FeatureSpace
from cel.space.hard_ranges import moved_inside, outside_hard

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
    outside = outside_hard(x, space) & ~skip[:, None]
    inside = moved_inside(x, space, outside)
    stuck = np.zeros(len(x), dtype=bool)
    for j in np.flatnonzero(outside.any(0)):
        f, away = space.features[j], outside[:, j]
        below = x[:, f.columns[0]] < inside[:, f.columns[0]]
        barred = away & ((not f.mutable) | (below & (f.direction == "down")))
        barred |= away & ~below & (f.direction == "up")
        if reasons is not None:
            for row in np.flatnonzero(barred & ~stuck):
                reasons[row] = f"{f.name!r} starts outside its range and may not move into it"
        stuck |= barred
    return Starts(x=inside, moved=outside.any(1) & ~stuck, stuck=stuck)
