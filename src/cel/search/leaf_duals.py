"""Lower bounds of the cost of a demand on tree sums: every tree pays its share of each axis.

The cheapest point of a box that meets `sum of leaves + const >= 0` costs at least

    floor + lam * need - sum over trees of max over leaves of (lam * value - shared cost),

where the shared cost of a leaf is `sum over axes of share * (cost to enter - floor of the axis)`
and the shares of an axis over the trees add up to one: a point pays each axis once, and each tree
may count on its share only. The shares and `lam` that make this largest are approached by steps
along subgradients; every step gives a valid bound. This is the Lagrangian dual of the integer
program with one copy of the point per tree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cel.search.leaf_costs import CostTable, expand

__all__ = ["DualBounds", "LeafLists", "dual_bounds"]

TINY = 1e-9


@dataclass(eq=False)
class LeafLists:
    """The leaves that boxes may still use, one box after the other, by tree inside a box.

    Attributes:
        boxes: how many boxes there are.
        trees: how many trees.
        leaf: (N,) the leaves.
        box: (N,) their boxes.
        at: (M,) the conditions of these leaves, in their order.
        of: (M,) place in `leaf` of each condition.
        extra: (M,) what a condition adds to the floor of its axis.
        cell: (M,) cell by which a range is entered.
        cost: (N,) what a leaf adds to the floor of its box.
    """

    boxes: int
    trees: int
    leaf: np.ndarray
    box: np.ndarray
    at: np.ndarray
    of: np.ndarray
    extra: np.ndarray
    cell: np.ndarray
    cost: np.ndarray

    @classmethod
    def of_boxes(
        cls,
        table: CostTable,
        boxes: np.ndarray,
        rows: np.ndarray,
        least: np.ndarray,
        leaf: np.ndarray,
        box: np.ndarray,
    ) -> LeafLists:
        """Price some leaves (N,) of boxes (N,) whose axes cost at least `least` (R, A)."""
        c = table.conditions
        at, of = expand(c.start[leaf], c.count[leaf])
        cost, cell = table.enter(boxes, rows, at, box[of])
        extra = np.maximum(cost - least[box[of], c.axis[at]], 0.0)
        total = np.bincount(of, weights=extra, minlength=len(leaf))
        return cls(len(boxes), c.boxes.trees, leaf, box, at, of, extra, cell, total)

    @property
    def place(self) -> np.ndarray:
        """(N,) box and tree of each leaf as one number, ascending."""
        return self._place

    def __post_init__(self) -> None:
        self._place = np.zeros(0, dtype=np.int64)

    def number(self, tree: np.ndarray) -> None:
        """Fill `place`; `tree` (L,) are the trees of all leaves."""
        self._place = self.box * self.trees + tree[self.leaf]

    def keep(self, good: np.ndarray) -> LeafLists:
        """Return the leaves that a mask (N,) keeps."""
        new = np.cumsum(good) - 1
        conditions = good[self.of]
        out = LeafLists(
            self.boxes, self.trees, self.leaf[good], self.box[good], self.at[conditions],
            new[self.of[conditions]], self.extra[conditions], self.cell[conditions],
            self.cost[good],
        )  # fmt: skip
        out._place = self._place[good]
        return out

    def only(self, keep: np.ndarray) -> LeafLists:
        """Return the lists of the boxes that a mask (R,) keeps, numbered anew."""
        out = self.keep(keep[self.box])
        shift = (np.arange(len(keep)) - (np.cumsum(keep) - 1))[out.box]
        out.boxes, out.box = int(keep.sum()), out.box - shift
        out._place = out._place - shift * self.trees
        return out

    def best(self, value: np.ndarray) -> np.ndarray:
        """Return the largest of values (N,) per box and tree, (R, T); -inf without a leaf."""
        out = np.full(self.boxes * self.trees, -np.inf)
        starts = np.flatnonzero(np.diff(self._place, prepend=-1))
        if len(starts):
            out[self._place[starts]] = np.maximum.reduceat(value, starts)
        return out.reshape(self.boxes, self.trees)


@dataclass(frozen=True, eq=False)
class DualBounds:
    """What some steps have found.

    Attributes:
        bound: (R,) no point of the box that meets the demand costs less.
        lam: (R,) price of the demand.
        share: (R, T, A) of the best step.
        chosen: (R * T,) place of the leaf that each tree takes there.
        spare: (N,) what each leaf adds to the bound when its tree has to take it.
    """

    bound: np.ndarray
    lam: np.ndarray
    share: np.ndarray
    chosen: np.ndarray
    spare: np.ndarray


def dual_bounds(
    lists: LeafLists,
    axis: np.ndarray,
    axes: int,
    value: np.ndarray,
    need: np.ndarray,
    floor: np.ndarray,
    target: np.ndarray,
    share: np.ndarray,
    lam: np.ndarray,
    steps: int,
) -> DualBounds:
    """Raise the bounds of boxes by some steps.

    Args:
        lists: their leaves, at least one for each box and tree.
        axis: (M,) axis of each condition.
        axes: number of axes A.
        value: (N,) leaf values of the form that each box is asked for.
        need: (R,) what the sums must reach.
        floor: (R,) cost of the cheapest cells.
        target: (R,) bounds that would close the boxes.
        share: (R, T, A) shares to start from.
        lam: (R,) prices to start from.
        steps: how many.
    """
    r, t = lists.boxes, lists.trees
    pair = lists.place[lists.of] * axes + axis  # (M,) box, tree and axis of each condition
    taking = np.zeros(r * t * axes, dtype=bool)
    taking[pair] = True
    members = taking.reshape(r, t, axes).sum(1)  # (R, A) trees that an axis matters to
    share = _normal(np.where(taking.reshape(r, t, axes), share, 0.0), taking, members)
    starts = np.flatnonzero(np.diff(lists.place, prepend=-1))
    sizes = np.diff(np.append(starts, len(lists.leaf)))
    best = DualBounds(np.full(r, -np.inf), lam, share, starts, np.zeros(len(lists.leaf)))
    scale = np.maximum(target - floor, TINY) / np.maximum(np.abs(need - _home(lists, value)), TINY)
    for step in range(steps):
        paid = np.bincount(
            lists.of, weights=share.reshape(-1)[pair] * lists.extra, minlength=len(lists.leaf)
        )
        score = lam[lists.box] * value - paid
        top = np.maximum.reduceat(score, starts)
        behind = np.repeat(top, sizes) - score
        first = np.flatnonzero(behind == 0)
        chosen = first[np.searchsorted(first, starts)]
        bound = floor + lam * need - top.reshape(r, t).sum(1)
        better = bound > best.bound
        best = DualBounds(
            np.where(better, bound, best.bound), np.where(better, lam, best.lam),
            np.where(better[:, None, None], share, best.share),
            np.where(np.repeat(better, t), chosen, best.chosen),
            np.where(better[lists.box], behind, best.spare),
        )  # fmt: skip
        if step == steps - 1 or (best.bound >= target).all():
            break
        taken = np.zeros(len(lists.leaf), dtype=bool)
        taken[chosen] = True
        asks = taken[lists.of]
        slope = np.zeros(r * t * axes)
        slope[pair[asks]] = lists.extra[asks]
        slope = slope.reshape(r, t, axes)
        mean = slope.sum(1) / np.maximum(members, 1)
        slope = np.where(taking.reshape(r, t, axes), slope - mean[:, None], 0.0)
        rise = (need - value[chosen].reshape(r, t).sum(1)) * scale
        size = (slope**2).sum((1, 2)) + rise**2
        go = np.maximum(target - bound, TINY) / np.maximum(size, TINY)
        share = _normal(np.maximum(share + go[:, None, None] * slope, 0.0), taking, members)
        lam = np.maximum(lam + go * rise * scale, 0.0)
    return best


def _home(lists: LeafLists, value: np.ndarray) -> np.ndarray:
    """Return (R,) sums over trees of the best leaf that costs nothing more, or the least one."""
    free = lists.best(np.where(lists.cost <= TINY, value, -np.inf))
    return np.where(np.isfinite(free), free, -lists.best(-value)).sum(1)


def _normal(share: np.ndarray, taking: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Return shares that add up to one over the trees of each axis; none: equal ones."""
    total = share.sum(1, keepdims=True)
    equal = taking.reshape(share.shape) / np.maximum(members, 1)[:, None]
    return np.asarray(np.where(total > TINY, share / np.maximum(total, TINY), equal))
