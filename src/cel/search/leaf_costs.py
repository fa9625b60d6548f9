"""What it costs a row to enter the leaves of trees, from inside boxes of cells.

A leaf is a list of conditions, at most one per axis: a range of cells, or a set of them. In a box
a condition costs at least the cheapest cell of the box that meets it; a leaf costs the sum of its
conditions. Both are bounds from below: they never exceed what a point of the box and the leaf
costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cel.search.leaf_bits import LeafConditions

__all__ = ["CostTable", "expand"]


def expand(start: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers `start_i .. start_i + count_i - 1` of all i, and the i of each."""
    which = np.repeat(np.arange(len(count)), count)
    first = np.cumsum(count) - count
    return np.arange(len(which)) - np.repeat(first - start, count), which


@dataclass(frozen=True, eq=False)
class CostTable:
    """Prices (n, C) of the cells of n rows, ready for questions about ranges.

    Attributes:
        conditions: of the leaves.
        price: (n, C).
        best: (n, A) a cheapest cell of each axis.
        away: (n, C) the least price of a cell and those beyond it, seen from the cheapest one.
    """

    conditions: LeafConditions
    price: np.ndarray
    best: np.ndarray
    away: np.ndarray

    @classmethod
    def of(cls, conditions: LeafConditions, price: np.ndarray) -> CostTable:
        """Prepare the prices of some rows."""
        offset = conditions.boxes.offset
        away = np.empty_like(price)
        best = np.empty((len(price), len(offset) - 1), dtype=np.int64)
        for a, (b, e) in enumerate(pairwise(offset)):
            part = price[:, b:e]
            best[:, a] = b + part.argmin(1)
            down = np.minimum.accumulate(part, axis=1)
            up = np.minimum.accumulate(part[:, ::-1], axis=1)[:, ::-1]
            away[:, b:e] = np.where(np.arange(b, e) > best[:, a, None], up, down)
        return cls(conditions, price, best, away)

    def enter(
        self, boxes: np.ndarray, rows: np.ndarray, at: np.ndarray, box: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what conditions cost in boxes, and where they are entered.

        Args:
            boxes: (R, C) cells of the boxes; every axis has some.
            rows: (R,) their rows.
            at: (M,) conditions.
            box: (M,) the box of each.

        Returns:
            (costs (M,), infinite where no cell is left; cells (M,) by which a range is entered).
        """
        c, offset = self.conditions, self.conditions.boxes.offset
        place = np.arange(boxes.shape[1])
        first = np.minimum.reduceat(np.where(boxes, place, len(place)), offset[:-1], axis=1)
        last = np.maximum.reduceat(np.where(boxes, place, -1), offset[:-1], axis=1)
        which = box * first.shape[1] + c.axis[at]  # box and axis as one number
        low = np.maximum(c.low[at], first.reshape(-1)[which])
        high = np.minimum(c.high[at], last.reshape(-1)[which])
        cell = np.minimum(np.maximum(self.best[rows].reshape(-1)[which], low), high)
        cost = self.away.reshape(-1)[(rows * len(place))[box] + np.maximum(cell, 0)]
        cost[low > high] = np.inf
        if c.in_sets:
            by_set = self._sets(boxes, rows)
            inset = c.which[at]
            cost = np.where(inset >= 0, by_set[box, inset], cost)
        return cost, cell

    def _sets(self, boxes: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the least price (R, G) of each set in each box: the best cell or the second."""
        c, offset = self.conditions, self.conditions.boxes.offset
        out = np.empty((len(boxes), c.in_sets))
        for a, number, sets in c.sets:
            part = slice(offset[a], offset[a + 1])
            price = np.where(boxes[:, part], self.price[rows, part], np.inf)
            best = price.argmin(1)
            least = np.take_along_axis(price, best[:, None], 1)
            np.put_along_axis(price, best[:, None], np.inf, 1)
            second = price.min(1, keepdims=True)
            meets = boxes[:, part].astype(np.float32) @ sets.T.astype(np.float32) > 0
            cost = np.where(sets[:, best].T, least, second)
            out[:, number : number + len(sets)] = np.where(meets, cost, np.inf)
        return out
