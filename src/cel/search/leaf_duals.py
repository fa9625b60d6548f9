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

__all__ = ["DualBounds", "DualStart", "LeafLists", "dual_bounds"]

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
    """What some steps have found; P pairs of a tree and an axis that its leaves ask for.

    Attributes:
        bound: (R,) no point of the box that meets the demand costs less.
        lam: (R,) price of the demand.
        pairs: (P,) box, tree and axis as one number, ascending.
        share: (P,) of the best step.
        chosen: (R * T,) place of the leaf that each tree takes there.
        spare: (N,) what each leaf adds to the bound when its tree has to take it.
    """

    bound: np.ndarray
    lam: np.ndarray
    pairs: np.ndarray
    share: np.ndarray
    chosen: np.ndarray
    spare: np.ndarray


class _Shares:
    """Shares of the trees in the axes of boxes: at least 0, together 1 per box and axis."""

    def __init__(self, lists: LeafLists, axis: np.ndarray, axes: int) -> None:
        key = lists.place[lists.of] * axes + axis
        taking = np.zeros(lists.boxes * lists.trees * axes, dtype=bool)
        taking[key] = True
        self.pairs = np.flatnonzero(taking)
        number = np.empty(len(taking), dtype=np.int64)
        number[self.pairs] = np.arange(len(self.pairs))
        self.of = number[key]  # (M,) pair of each condition
        self.box = self.pairs // (lists.trees * axes)
        self.group = self.box * axes + self.pairs % axes
        self.groups = lists.boxes * axes
        self.members = np.maximum(np.bincount(self.group, minlength=self.groups), 1)

    def normal(self, share: np.ndarray) -> np.ndarray:
        """Return shares (P,) that add up to one; equal ones where all are zero."""
        total = np.bincount(self.group, weights=share, minlength=self.groups)
        none = total <= TINY
        share = share / np.where(none, 1.0, total)[self.group]
        return np.where(none[self.group], 1.0 / self.members[self.group], share)

    def centred(self, slope: np.ndarray) -> np.ndarray:
        """Return slopes (P,) less their mean per box and axis."""
        total = np.bincount(self.group, weights=slope, minlength=self.groups)
        return np.asarray(slope - (total / self.members)[self.group])


@dataclass(frozen=True, eq=False)
class DualStart:
    """Where the steps begin and what they are for.

    Attributes:
        need: (R,) what the sums must reach.
        floor: (R,) cost of the cheapest cells.
        target: (R,) bounds that would close the boxes.
        lam: (R,) prices of the demand.
        share: (R, T * A) shares.
    """

    need: np.ndarray
    floor: np.ndarray
    target: np.ndarray
    lam: np.ndarray
    share: np.ndarray


def dual_bounds(
    lists: LeafLists, axis: np.ndarray, axes: int, value: np.ndarray, begin: DualStart, steps: int
) -> DualBounds:
    """Raise the bounds of boxes by some steps.

    Args:
        lists: their leaves, at least one for each box and tree.
        axis: (M,) axis of each condition.
        axes: number of axes A.
        value: (N,) leaf values of the form that each box is asked for.
        begin: where the steps begin.
        steps: how many.
    """
    r, t, n = lists.boxes, lists.trees, len(lists.leaf)
    shares = _Shares(lists, axis, axes)
    share = shares.normal(begin.share.reshape(-1)[shares.pairs].astype(np.float64))
    starts = np.flatnonzero(np.diff(lists.place, prepend=-1))
    sizes = np.diff(np.append(starts, n))
    need, floor, target, lam = begin.need, begin.floor, begin.target, begin.lam
    best = DualBounds(np.full(r, -np.inf), lam, shares.pairs, share, starts, np.zeros(n))
    scale = np.maximum(target - floor, TINY) / np.maximum(np.abs(need - _home(lists, value)), TINY)
    for step in range(steps):
        paid = np.bincount(lists.of, weights=share[shares.of] * lists.extra, minlength=n)
        score = lam[lists.box] * value - paid
        top = np.maximum.reduceat(score, starts)
        behind = np.repeat(top, sizes) - score
        first = np.flatnonzero(behind == 0)
        chosen = first[np.searchsorted(first, starts)]
        bound = floor + lam * need - top.reshape(r, t).sum(1)
        better = bound > best.bound
        best = DualBounds(
            np.where(better, bound, best.bound), np.where(better, lam, best.lam), shares.pairs,
            np.where(better[shares.box], share, best.share),
            np.where(np.repeat(better, t), chosen, best.chosen),
            np.where(better[lists.box], behind, best.spare),
        )  # fmt: skip
        if step == steps - 1 or (best.bound >= target).all():
            break
        taken = np.zeros(n, dtype=bool)
        taken[chosen] = True
        slope = np.bincount(
            shares.of, weights=taken[lists.of] * lists.extra, minlength=len(share)
        )
        slope = shares.centred(slope)
        rise = (need - value[chosen].reshape(r, t).sum(1)) * scale
        size = np.bincount(shares.box, weights=slope**2, minlength=r) + rise**2
        go = np.maximum(target - bound, TINY) / np.maximum(size, TINY)
        share = shares.normal(np.maximum(share + go[shares.box] * slope, 0.0))
        lam = np.maximum(lam + go * rise * scale, 0.0)
    return best


def _home(lists: LeafLists, value: np.ndarray) -> np.ndarray:
    """Return (R,) sums over trees of the best leaf that costs nothing more, or the least one."""
    free = lists.best(np.where(lists.cost <= TINY, value, -np.inf))
    return np.asarray(np.where(np.isfinite(free), free, -lists.best(-value)).sum(1))
