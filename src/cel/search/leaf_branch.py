"""Branch and bound over boxes of cells that works with the leaves themselves.

The problem and the order of `cel.search.branch`, with sharper bounds. A leaf of a tree costs at
least what its conditions cost in the box; leaves that cost too much are struck out, then those
with which the best remaining leaves of all other trees do not suffice, then the cells that no
remaining leaf of some tree has. What is still open gets a Lagrangian bound (`leaf_duals`), and is
split where the trees disagree most about a move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from cel.search.branch import TINY, BoxProblem, SearchProof
from cel.search.coordinate import Incumbents
from cel.search.leaf_costs import CostTable
from cel.search.leaf_duals import DualBounds, DualStart, LeafLists, Rungs, dual_bounds
from cel.search.open_boxes import BoxesAtWork, LeafPool, OpenBoxes, renumber

__all__ = ["LeafSearch", "leaf_branch_and_bound"]

FIRST_STEPS = 40  # of the dual of a whole row
STEPS = 8  # of the dual of a box
_CHUNK = 2**18  # pairs of a tree and an axis at a time


class LeafSearch:
    """The open boxes of all rows."""

    def __init__(
        self, problem: BoxProblem, best: Incumbents, nodes: int | np.ndarray, width: int
    ) -> None:
        n = len(problem.price)
        self.problem, self.best, self.width = problem, best, width
        self.limit = np.broadcast_to(nodes, n)  # most boxes of each row
        self.owner, self.axes = problem.owner, len(problem.offset) - 1
        self.begin = problem.offset[:-1]
        self.nodes = np.zeros(n, dtype=np.int64)
        self.grey = np.full(n, np.inf)  # cheapest points of which rounding hides what they are
        self.conditions = problem.bits[0].boxes.conditions
        self.table = CostTable.of(self.conditions, problem.price)
        self.value = np.stack(
            [t[b.slot] for b, t in zip(problem.bits, problem.tables, strict=True)]
        )  # (Q, L)
        self.lam = np.full(n, np.nan)  # price of the demand, of the whole row
        self.kept: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # row, key, weight
        self.pool = LeafPool(len(self.conditions.tree))
        root = np.isfinite(problem.price)
        rows = np.arange(n)
        whole = np.zeros(n, dtype=np.int64), np.full(n, len(self.conditions.tree))
        self.open = OpenBoxes(np.packbits(root, axis=1), rows, self._floors(root, rows), *whole)

    def _cheapest(self, boxes: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return price (R, C) with infinity outside the boxes, and its least value per axis."""
        price = np.where(boxes, self.problem.price[rows], np.inf)
        return price, np.minimum.reduceat(price, self.begin, axis=1)

    def _floors(self, boxes: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self._cheapest(boxes, rows)[1].sum(1))

    def take(self) -> OpenBoxes:
        """Return the best open boxes of every row that is not done, and drop closed ones."""
        nodes = self.open
        spent = self.nodes[nodes.row] >= self.limit[nodes.row]
        alive = (nodes.floor < self.best.cost[nodes.row] - TINY) & ~spent
        order = np.lexsort((nodes.floor, nodes.row))
        order = order[(alive | spent)[order]]
        row = nodes.row[order]
        first = np.flatnonzero(np.diff(row, prepend=-1))
        rank = np.arange(len(row)) - np.repeat(first, np.diff(np.append(first, len(row))))
        mine = alive[order] & (rank < self.width)
        self.open = nodes.select(order[~mine])
        taken = nodes.select(order[mine])
        np.add.at(self.nodes, taken.row, 1)
        return taken

    def look(self, nodes: OpenBoxes) -> Iterator[OpenBoxes]:
        """Close boxes or split them; yield the parts that stay open."""
        boxes = np.unpackbits(nodes.box, axis=1, count=len(self.owner)).astype(bool)
        leaf, box = self.pool.lists(nodes.start, nodes.count)
        state = self._strike(boxes, nodes.row, nodes.floor, leaf, box)
        if not len(state.rows):
            return
        state, point, forms, lawful = self._close(state)
        if len(state.rows):
            first = bool(np.isnan(self.lam[state.rows]).any())
            steps = FIRST_STEPS if first else STEPS
            yield from self._split(*self._bound(state, point, forms, lawful, steps))

    def _strike(
        self,
        boxes: np.ndarray,
        rows: np.ndarray,
        floor: np.ndarray,
        leaf: np.ndarray,
        box: np.ndarray,
    ) -> BoxesAtWork:
        """Strike out cells and leaves that no cheaper answer can have.

        Leaves are priced before the cells go that no leaf of some tree has.
        """
        p = self.problem
        price, least = self._cheapest(boxes, rows)
        spare = (self.best.cost[rows] - least.sum(1))[:, None] + least
        boxes = price < spare[:, self.owner] - TINY
        if p.strike is not None:
            boxes = p.strike(boxes, rows)
        some = np.asarray(np.logical_or.reduceat(boxes, self.begin, axis=1).all(1))
        leaf, box = renumber(leaf, box, some)
        boxes, rows, floor = boxes[some], rows[some], floor[some]
        _, least = self._cheapest(boxes, rows)
        lists = LeafLists.of_boxes(self.table, boxes, rows, least, leaf, box)
        lists.number(self.conditions.tree)
        spare = self.best.cost[rows] - least.sum(1)
        good = (lists.cost < spare[lists.box] - TINY) & np.isfinite(lists.cost)
        alive = np.ones(len(rows), dtype=bool)
        for q, values in enumerate(self.value):
            value = np.where(good, values[lists.leaf], -np.inf)
            top = lists.best(value)
            high = top.sum(1) + p.const[rows, q] + p.slack[q]
            alive &= high >= 0  # minus infinity where a tree has no leaf left
            some = np.isfinite(top)
            room = np.where(some, high[:, None] - np.where(some, top, 0.0), -np.inf)
            good &= room.reshape(-1)[lists.place] + value >= 0
        lists, boxes = lists.only(alive, good), boxes[alive]
        state = BoxesAtWork(boxes, rows[alive], floor[alive], least[alive], lists)
        boxes = self._hull(boxes, lists)
        full = np.asarray(np.logical_or.reduceat(boxes, self.begin, axis=1).all(1))
        return replace(state, boxes=boxes).select(full)

    def _hull(self, boxes: np.ndarray, lists: LeafLists) -> np.ndarray:
        """Strike out the cells beyond all leaves of some tree that is bound on the axis."""
        c, shape = self.conditions, (lists.boxes, lists.trees, self.axes)
        number = c.which[lists.at] < 0
        at = lists.at[number]
        key = lists.place[lists.of[number]] * self.axes + c.axis[at]
        leaves = np.bincount(lists.place, minlength=shape[0] * shape[1]).reshape(*shape[:2], 1)
        bound = np.bincount(key, minlength=int(np.prod(shape))).reshape(shape) == leaves
        low = np.full(shape, boxes.shape[1])
        np.minimum.at(low.reshape(-1), key, c.low[at])
        high = np.full(shape, -1)
        np.maximum.at(high.reshape(-1), key, c.high[at])
        first = np.where(bound, low, -1).max(1)[:, self.owner]
        last = np.where(bound, high, boxes.shape[1]).min(1)[:, self.owner]
        cell = np.arange(boxes.shape[1])
        return np.asarray(boxes & (cell >= first) & (cell <= last))

    def _close(self, state: BoxesAtWork) -> tuple[BoxesAtWork, np.ndarray, np.ndarray, np.ndarray]:
        """Try the cheapest point of each box; return the boxes that it does not settle.

        Returns:
            (the boxes, their points (R, A), the forms there (R, Q), whether these are legal).
        """
        p, rows = self.problem, state.rows
        price, least = self._cheapest(state.boxes, rows)
        point = self._points(price)
        forms = p.forms(point, rows)
        good, maybe = (forms >= 0).all(1), (forms + p.slack >= 0).all(1)
        legal, might = np.ones(len(rows), dtype=bool), np.ones(len(rows), dtype=bool)
        if p.legal is not None:
            legal, might = p.legal(point, rows)
        good, maybe = good & legal, maybe & might
        cost = least.sum(1)
        self.best.offer(rows[good], point[good], cost[good])
        single = (np.add.reduceat(state.boxes, self.begin, axis=1, dtype=np.int64) == 1).all(1)
        hidden = maybe & ~good & single
        np.minimum.at(self.grey, rows[hidden], cost[hidden])
        floor = np.maximum(state.floor, cost)
        left = ~good & ~single & (floor < self.best.cost[rows] - TINY)
        kept = replace(state, floor=floor).select(left)
        return kept, point[left], forms[left], legal[left]

    def _points(self, price: np.ndarray) -> np.ndarray:
        """Return the cheapest cell of each axis (R, A); ties go to the earlier one."""
        out = np.empty((len(price), self.axes), dtype=np.int64)
        for a, (b, e) in enumerate(zip(self.begin, self.problem.offset[1:], strict=True)):
            out[:, a] = b + price[:, b:e].argmin(1)
        return out

    def _bound(
        self,
        state: BoxesAtWork,
        point: np.ndarray,
        forms: np.ndarray,
        lawful: np.ndarray,
        steps: int,
    ) -> tuple[BoxesAtWork, np.ndarray, np.ndarray, np.ndarray]:
        """Raise the floors by the dual; return what stays open, with axes and cuts to split at.

        Returns:
            (the boxes, their points (R, A), axes (R,), cells (R,) where the far part begins, -1
            for a split around the point).
        """
        p, rows, lists = self.problem, state.rows, state.lists
        assert lists is not None
        form = forms.argmin(1)
        value = self.value[form[lists.box], lists.leaf]
        need = -(p.const[rows, form] + p.slack[form])
        price, _ = self._cheapest(state.boxes, rows)
        dearest = np.maximum.reduceat(np.where(np.isfinite(price), price, -np.inf), self.begin, 1)
        limit = np.minimum(self.best.cost[rows], dearest.sum(1) + 1.0)
        floor = state.least.sum(1)
        rungs = self._rungs(lists, rows)
        start, weight = self._start(rungs, rows)
        fresh = np.isnan(start)
        short = np.maximum(-forms[np.arange(len(rows)), form], 1e-3)
        start = np.where(fresh, np.maximum(limit - floor, TINY) / short, start)
        begin = DualStart(need, floor, limit, start, weight)
        dual = dual_bounds(lists, rungs, value, begin, steps)
        if fresh.any():
            self.lam[rows[fresh]] = dual.lam[fresh]
            mine = fresh[rungs.box]
            self.kept.append((rows[rungs.box[mine]], rungs.key[mine], dual.weight[mine]))
        bound = dual.bound - TINY * (1 + np.abs(dual.bound))
        lists = lists.keep(bound[lists.box] + dual.spare < limit[lists.box] - TINY)
        state = replace(state, floor=np.maximum(state.floor, bound))
        axis_, cut = self._cuts(state, rungs, dual)
        around = (forms + p.slack >= 0).all(1) & ~lawful
        if p.blame is not None and around.any():
            several = np.add.reduceat(state.boxes, self.begin, axis=1, dtype=np.int64) > 1
            blamed = p.blame(point, rows) & several
            use = around & blamed.any(1)
            axis_, cut = np.where(use, blamed.argmax(1), axis_), np.where(use, -1, cut)
        left = bound < limit - TINY
        return replace(state, lists=lists).select(left), point[left], axis_[left], cut[left]

    def _rungs(self, lists: LeafLists, rows: np.ndarray) -> Rungs:
        c = self.conditions
        axis = c.axis[lists.at]
        home = self.table.best[rows[lists.box[lists.of]], axis]
        side = np.where(c.which[lists.at] >= 0, 0, np.sign(lists.cell - home))
        return Rungs(lists, axis, self.axes, side, len(self.owner))

    def _start(self, rungs: Rungs, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return prices of the demand and weights of rungs: those of the whole row, or equal."""
        weight = rungs.cost.copy()
        if self.kept:
            if len(self.kept) > 1:  # rows in their order, keys of a row ascending
                parts = [np.concatenate(p) for p in zip(*self.kept, strict=True)]
                order = np.lexsort((parts[1], parts[0]))
                self.kept = [(parts[0][order], parts[1][order], parts[2][order])]
            row, key, known = self.kept[0]
            size = np.int64(3 * len(self.conditions.tree) * self.axes * (len(self.owner) + 1))
            have = row * size + key
            mine = rows[rungs.box] * size + rungs.key
            at = np.minimum(np.searchsorted(have, mine), len(have) - 1)
            weight = np.where(have[at] == mine, known[at], 0.01 * weight)
        return self.lam[rows], weight

    def _cuts(
        self, state: BoxesAtWork, rungs: Rungs, dual: DualBounds
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the axis on which the trees disagree most, and where the far part begins."""
        lists, c = state.lists, self.conditions
        assert lists is not None
        r, a = lists.boxes, self.axes
        taken = np.zeros(len(lists.leaf), dtype=bool)
        taken[dual.chosen] = True
        asks = np.flatnonzero(taken[lists.of] & (rungs.of >= 0))
        at, box = lists.at[asks], lists.box[lists.of[asks]]
        axis, extra = c.axis[at], lists.extra[asks]
        paid = rungs.paid(dual.weight)[asks]
        wanted = np.zeros((r, a))
        np.maximum.at(wanted, (box, axis), extra)
        spread = np.bincount(box * a + axis, weights=paid, minlength=r * a).reshape(r, a)
        score = wanted - spread
        concerned = np.bincount(
            lists.box[lists.of] * a + c.axis[lists.at], minlength=r * a
        ).reshape(r, a)
        score = np.where(score > TINY, 1.0 + score, concerned / (1.0 + concerned.sum(1))[:, None])
        several = np.add.reduceat(state.boxes, self.begin, axis=1, dtype=np.int64) > 1
        best = np.where(several, score, -1.0).argmax(1)
        here = (axis == best[box]) & (c.which[at] < 0)
        order = np.lexsort((paid[here], box[here]))  # the heaviest demand comes last
        cut = np.full(r, -1)
        cut[box[here][order]] = lists.cell[asks][here][order]
        return best, cut

    def _split(
        self, state: BoxesAtWork, point: np.ndarray, axis: np.ndarray, cut: np.ndarray
    ) -> Iterator[OpenBoxes]:
        """Yield the parts of boxes: near and far of a cut, or the point's cell, below, above."""
        lists = state.lists
        assert lists is not None
        start, count = self.pool.put(lists.leaf, np.bincount(lists.box, minlength=lists.boxes))
        at = np.take_along_axis(point, axis[:, None], 1)
        to, cell = cut[:, None], np.arange(state.boxes.shape[1])
        own = self.owner == axis[:, None]
        at_all = to < 0
        far = np.where(to > at, cell >= to, cell <= to)
        for part in (
            np.where(at_all, cell == at, far), np.where(at_all, cell < at, ~far),
            at_all & (cell > at),
        ):  # fmt: skip
            child = state.boxes & (~own | part)
            some = (child & own).any(1)
            child, rows = child[some], state.rows[some]
            floor = np.maximum(self._floors(child, rows), state.floor[some])
            good = floor < self.best.cost[rows] - TINY
            yield OpenBoxes(
                np.packbits(child[good], axis=1), rows[good], floor[good], start[some][good],
                count[some][good],
            )  # fmt: skip

    def run(self, expired: Callable[[], bool]) -> None:
        """Look at boxes until none is left, the limits are reached or the time is."""
        size = max(1, _CHUNK // (self.problem.bits[0].trees * self.axes))
        while not expired():
            nodes = self.take()
            if not len(nodes.row):
                break
            parts = [self.open]
            for i in range(0, len(nodes.row), size):
                parts += self.look(nodes.select(slice(i, i + size)))
            self.open = OpenBoxes.joined(parts)

    def proof(self) -> SearchProof:
        """Return what is proved by now."""
        left = self.open
        return SearchProof.of(self.best, self.grey, left.row, left.floor, self.nodes)


def leaf_branch_and_bound(
    problem: BoxProblem,
    best: Incumbents,
    *,
    nodes: int,
    expired: Callable[[], bool],
    width: int = 32,
) -> SearchProof:
    """Return the cheapest points and proved bounds of all rows.

    Args:
        problem: the rows.
        best: points that are known already; improved in place.
        nodes: most boxes per row.
        expired: asked between rounds; true ends the search.
        width: boxes of one row that are looked at together.
    """
    n = len(problem.price)
    if not n or not problem.bits:  # nothing is asked: the rows have it, or there are none
        return SearchProof(best, np.zeros(n), np.zeros(n, dtype=bool), np.zeros(n, dtype=np.int64))
    search = LeafSearch(problem, best, nodes, width)
    search.run(expired)
    return search.proof()
