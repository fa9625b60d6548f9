"""Lower bounds of the cost of a demand on tree sums: trees share what an axis costs.

A point pays each axis once, however many trees want it to move. Every tree gets a price list of
its own: weights for the cells by which its leaves are entered (rungs). Where the weights of all
trees up to any cell add up to at most the price of that cell, the cheapest point of a box that
meets `sum of leaves >= need` costs at least

    floor + lam * need - sum over trees of max over leaves of (lam * value - weights crossed).

The weights and `lam` that make this largest are approached by steps along subgradients; every
step gives a valid bound. This is a Lagrangian dual of the integer program with one copy of the
point per tree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cel.search.leaf_costs import CostTable, expand

__all__ = ["DualBounds", "DualStart", "LeafLists", "Rungs", "dual_bounds"]

TINY = 1e-9
MOMENTUM = 0.6
SHRINK = 0.02  # of steps, from the first to the last


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

    def only(self, keep: np.ndarray, good: np.ndarray | None = None) -> LeafLists:
        """Return the lists of the boxes that a mask (R,) keeps, numbered anew.

        Args:
            keep: (R,) bool.
            good: (N,) bool, the leaves that stay; all of them by default.
        """
        mine = keep[self.box]
        out = self.keep(mine if good is None else mine & good)
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


class Rungs:
    """The steps away from the cheapest cells that the leaves of each tree ask for.

    A rung is a cell by which leaves of one tree are entered; leaves that are entered farther out
    on the same side have crossed it, too. Weights of rungs are valid where, on every axis and
    side of a box, those up to a rung add up to at most what that rung costs.

    Attributes:
        key: (P,) tree, axis, side and cell as one number, for each box ascending.
        box: (P,) box of each rung.
        cost: (P,) what it adds to the floor of its axis.
        of: (M,) the rung of each condition, -1 where it costs nothing.
    """

    def __init__(
        self, lists: LeafLists, axis: np.ndarray, axes: int, side: np.ndarray, cells: int
    ) -> None:
        asks = np.flatnonzero(lists.extra > TINY)
        # one side outwards, the other inwards: ascending keys are farther and farther away
        level = np.where(side[asks] > 0, lists.cell[asks], cells - lists.cell[asks])
        level = np.where(side[asks] == 0, 0, level)
        ladder = (lists.place[lists.of[asks]] * axes + axis[asks]) * 3 + side[asks] + 1
        whole, first, of = np.unique(
            ladder * (cells + 1) + level, return_index=True, return_inverse=True
        )
        per_box = lists.trees * axes * 3 * (cells + 1)
        self.box, self.key = np.divmod(whole, per_box)
        self.cost = lists.extra[asks][first]
        self.of = np.full(len(axis), -1)
        self.of[asks] = of.reshape(-1)
        ladder = whole // (cells + 1)
        begins = np.flatnonzero(np.diff(ladder, prepend=-1))
        self._base = np.repeat(begins, np.diff(np.append(begins, len(whole))))
        self._ends = np.append(begins[1:], len(whole))
        self._ladder = np.cumsum(np.diff(ladder, prepend=-1) != 0) - 1
        outer = (self.box * axes + ladder // 3 % axes) * 3 + ladder % 3
        self._by_level = np.lexsort((whole % (cells + 1), outer))
        group = outer[self._by_level]
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        size = np.diff(np.append(starts, len(group)))
        self._group = np.repeat(np.arange(len(starts)), size)
        self._column = np.arange(len(group)) - np.repeat(starts, size)
        self._shape = (len(starts), int(size.max(initial=0)))

    def normal(self, weight: np.ndarray) -> np.ndarray:
        """Return valid weights (P,) in the proportions of the given ones."""
        place = (self._group, self._column)
        dense = np.zeros(self._shape)
        dense[place] = weight[self._by_level]
        total = np.cumsum(dense, axis=1)
        room = np.full(self._shape, np.inf)
        room[place] = self.cost[self._by_level] / np.maximum(total[place], TINY**2)
        # No factor exceeds one that a rung farther out has: prefixes stay below their limits.
        factor = np.minimum.accumulate(room[:, ::-1], axis=1)[:, ::-1]
        out = np.empty_like(weight)
        out[self._by_level] = dense[place] * factor[place]
        return out

    def paid(self, weight: np.ndarray) -> np.ndarray:
        """Return what each condition (M,) pays: the rungs of its tree up to its own."""
        total = np.concatenate([[0.0], np.cumsum(weight)])
        along = np.append(total[1:] - total[self._base], 0.0)  # the last one is for -1
        return np.asarray(along[self.of])

    def crossed(self, of: np.ndarray) -> np.ndarray:
        """Return (P,) bool: the rungs that conditions with the given rungs have crossed."""
        ends = np.full(len(self._ends), -1)
        ends[self._ladder[of]] = of
        return np.asarray(np.arange(len(self._ladder)) <= ends[self._ladder])


@dataclass(frozen=True, eq=False)
class DualBounds:
    """What some steps have found.

    Attributes:
        bound: (R,) no point of the box that meets the demand costs less.
        lam: (R,) price of the demand.
        weight: (P,) weights of the rungs at the best step.
        chosen: (R * T,) place of the leaf that each tree takes there.
        spare: (N,) what each leaf adds to the bound when its tree has to take it.
    """

    bound: np.ndarray
    lam: np.ndarray
    weight: np.ndarray
    chosen: np.ndarray
    spare: np.ndarray


@dataclass(frozen=True, eq=False)
class DualStart:
    """Where the steps begin and what they are for.

    Attributes:
        need: (R,) what the sums must reach.
        floor: (R,) cost of the cheapest cells.
        target: (R,) bounds that would close the boxes.
        lam: (R,) prices of the demand.
        weight: (P,) weights of the rungs.
    """

    need: np.ndarray
    floor: np.ndarray
    target: np.ndarray
    lam: np.ndarray
    weight: np.ndarray


def dual_bounds(
    lists: LeafLists, rungs: Rungs, value: np.ndarray, begin: DualStart, steps: int
) -> DualBounds:
    """Raise the bounds of boxes by some steps.

    Args:
        lists: their leaves, at least one for each box and tree.
        rungs: what these ask for.
        value: (N,) leaf values of the form that each box is asked for.
        begin: where the steps begin.
        steps: how many.
    """
    r, t, n = lists.boxes, lists.trees, len(lists.leaf)
    weight = rungs.normal(begin.weight)
    starts = np.flatnonzero(np.diff(lists.place, prepend=-1))
    sizes = np.diff(np.append(starts, n))
    need, floor, target, lam = begin.need, begin.floor, begin.target, begin.lam
    best = DualBounds(np.full(r, -np.inf), lam, weight, starts, np.zeros(n))
    scale = np.maximum(target - floor, TINY) / np.maximum(np.abs(need - _home(lists, value)), TINY)
    asking = np.flatnonzero(rungs.of >= 0)
    unit, push = np.sqrt(rungs.cost), np.zeros(len(weight))
    for step in range(steps):
        paid = np.bincount(lists.of, weights=rungs.paid(weight), minlength=n)
        score = lam[lists.box] * value - paid
        top = np.maximum.reduceat(score, starts)
        behind = np.repeat(top, sizes) - score
        first = np.flatnonzero(behind == 0)
        chosen = first[np.searchsorted(first, starts)]
        bound = floor + lam * need - top.reshape(r, t).sum(1)
        better = bound > best.bound
        best = DualBounds(
            np.where(better, bound, best.bound), np.where(better, lam, best.lam),
            np.where(better[rungs.box], weight, best.weight),
            np.where(np.repeat(better, t), chosen, best.chosen),
            np.where(better[lists.box], behind, best.spare),
        )  # fmt: skip
        if step == steps - 1 or (best.bound >= target).all():
            break
        taken = np.zeros(n, dtype=bool)
        taken[chosen] = True
        slope = rungs.crossed(rungs.of[asking[taken[lists.of[asking]]]]) * unit
        rise = (need - value[chosen].reshape(r, t).sum(1)) * scale
        size = np.bincount(rungs.box, weights=slope**2, minlength=r) + rise**2
        go = SHRINK ** (step / steps) * np.maximum(target - bound, TINY) / np.maximum(size, TINY)
        push = MOMENTUM * push + go[rungs.box] * slope * unit
        weight = rungs.normal(weight + push)
        lam = np.maximum(lam + go * rise * scale, 0.0)
    return best


def _home(lists: LeafLists, value: np.ndarray) -> np.ndarray:
    """Return (R,) sums over trees of the best leaf that costs nothing more, or the least one."""
    free = lists.best(np.where(lists.cost <= TINY, value, -np.inf))
    return np.asarray(np.where(np.isfinite(free), free, -lists.best(-value)).sum(1))
