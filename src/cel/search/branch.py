"""Best-first branch and bound over boxes of cells, with bounds that hold for certain.

A state is a box: a set of cells for each axis. Its price is at least the sum of the cheapest cells
of its axes; what a tree sum can reach in it is at most the sum of the best leaves that the box
meets. The same bound with one axis at a single cell tells which cells cannot be part of an answer;
they are struck out before a box is split. States are popped in the order of their floors, the best
ones of many rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cel.search.coordinate import Incumbents
from cel.search.leaf_bits import LeafBits
from cel.search.profiles import cell_ceilings, sums_at

__all__ = ["BoxProblem", "BoxSearch", "SearchProof", "branch_and_bound"]

TINY = 1e-9
FEW_LABELS = 16  # that a split tells apart
ROUNDS = 2  # times that cells are struck out before a box is split
_CHUNK = 2**20  # words at a time

Check = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""(points (R, A), rows (R,)) -> whether they keep the constraints between features, and whether
other values of the same cells might."""
Strike = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(boxes (R, C), rows (R,)) -> the boxes without cells that no legal point can have."""
Blame = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(points (R, A), rows (R,)) -> axes (R, A) of the constraints that the points break."""


@dataclass(frozen=True, eq=False)
class BoxProblem:
    """n rows over C cells.

    Attributes:
        offset: (A + 1,) first cell of each axis.
        price: (n, C) price of each cell, infinite where a row may not go.
        bits: for each form of the demand, bits with the leaves by falling value of the form.
        tables: for each form its leaf values, as `LeafBits.table` makes them.
        const: (n, Q) constants: a point is certainly good where every form + const >= 0.
        slack: (Q,) a box is certainly bad where a ceiling + const + slack < 0.
        legal: which points keep the constraints between features, or might; None: all do.
        strike: what these constraints strike out of boxes; None: nothing.
        blame: which axes of a point break them; one of these is split first.
    """

    offset: np.ndarray
    price: np.ndarray
    bits: tuple[LeafBits, ...]
    tables: tuple[np.ndarray, ...]
    const: np.ndarray
    slack: np.ndarray
    legal: Check | None = None
    strike: Strike | None = None
    blame: Blame | None = None

    @property
    def owner(self) -> np.ndarray:
        """(C,) axis of each cell."""
        return np.repeat(np.arange(len(self.offset) - 1), np.diff(self.offset))

    @property
    def masked(self) -> np.ndarray:
        """(A,) bool, axes whose cells have no order."""
        if not self.bits:
            return np.zeros(len(self.offset) - 1, dtype=bool)
        return self.bits[0].boxes.masked

    def select(self, rows: np.ndarray) -> BoxProblem:
        """Return the problem of some rows (m,)."""

        def of(ask: Any) -> Any:
            return None if ask is None else lambda what, which: ask(what, rows[which])

        return replace(
            self, price=self.price[rows], const=self.const[rows], legal=of(self.legal),
            strike=of(self.strike), blame=of(self.blame),
        )  # fmt: skip

    def forms(self, cells: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the forms (R, Q) at points (R, A)."""
        parts = [
            sums_at(bits, table[None], cells)[:, 0]
            for bits, table in zip(self.bits, self.tables, strict=True)
        ]
        return np.asarray(np.stack(parts, 1) + self.const[rows])

    def margin(self, cells: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Tell which points (R, A) are certainly good, and which may be."""
        good, maybe = np.ones(len(cells), dtype=bool), np.ones(len(cells), dtype=bool)
        for q, (bits, table) in enumerate(zip(self.bits, self.tables, strict=True)):
            form = sums_at(bits, table[None], cells)[:, 0] + self.const[rows, q]
            good &= form >= 0
            maybe &= form + self.slack[q] >= 0
        return good, maybe


@dataclass(frozen=True, eq=False)
class SearchProof:
    """What a search has proved.

    Attributes:
        best: the cheapest points.
        bound: (n,) no answer costs less; infinite where none exists.
        done: (n,) bool, whether the search ended by itself.
        nodes: (n,) boxes that were looked at.
    """

    best: Incumbents
    bound: np.ndarray
    done: np.ndarray
    nodes: np.ndarray

    @classmethod
    def of(
        cls,
        best: Incumbents,
        grey: np.ndarray,
        row: np.ndarray,
        floor: np.ndarray,
        nodes: np.ndarray,
    ) -> SearchProof:
        """Return what is proved when a search stops.

        Args:
            best: the cheapest points.
            grey: (n,) least cost of boxes that could not be decided.
            row: (m,) rows of the boxes that are still open.
            floor: (m,) what points in them cost at least.
            nodes: (n,) boxes that were looked at.
        """
        bound = np.minimum(best.cost, grey)
        np.minimum.at(bound, row, floor)
        open_ = np.zeros(len(bound), dtype=bool)
        open_[row[floor < best.cost[row] - TINY]] = True
        done = ~open_ & (grey >= best.cost - TINY)
        return cls(best, bound * (1 - 1e-12), done, nodes)


class BoxSearch:
    """The open boxes of all rows."""

    def __init__(
        self, problem: BoxProblem, best: Incumbents, nodes: int | np.ndarray, width: int
    ) -> None:
        n = len(problem.price)
        self.problem, self.best, self.width = problem, best, width
        self.limit = np.broadcast_to(nodes, n)  # most boxes of each row
        self.owner, self.axes = problem.owner, len(problem.offset) - 1
        self.begin = problem.offset[:-1]
        self.masked = problem.masked
        self.nodes = np.zeros(n, dtype=np.int64)
        self.grey = np.full(n, np.inf)  # cheapest points of which rounding hides what they are
        self.box = np.isfinite(problem.price)
        self.row = np.arange(n)
        self.floor = self._floors(self.box, self.row)

    def _cheapest(self, boxes: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return price (R, C) with infinity outside the boxes, and its least value per axis."""
        price = np.where(boxes, self.problem.price[rows], np.inf)
        return price, np.minimum.reduceat(price, self.begin, axis=1)

    def _floors(self, boxes: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self._cheapest(boxes, rows)[1].sum(1))

    def take(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the best open boxes of every row that is not done, and drop closed ones."""
        spent = self.nodes[self.row] >= self.limit[self.row]
        alive = (self.floor < self.best.cost[self.row] - TINY) & ~spent
        keep = alive | spent
        order = np.lexsort((self.floor, self.row))
        order = order[keep[order]]
        row = self.row[order]
        first = np.flatnonzero(np.diff(row, prepend=-1))
        rank = np.arange(len(row)) - np.repeat(first, np.diff(np.append(first, len(row))))
        taken = order[alive[order] & (rank < self.width)]
        boxes, rows = self.box[taken], self.row[taken]
        left = np.setdiff1d(order, taken, assume_unique=True)
        self.box, self.row, self.floor = self.box[left], self.row[left], self.floor[left]
        np.add.at(self.nodes, rows, 1)
        return boxes, rows

    def put(self, boxes: np.ndarray, rows: np.ndarray) -> None:
        """Open boxes that may still hold something cheaper."""
        floor = self._floors(boxes, rows)
        good = floor < self.best.cost[rows] - TINY
        self.box = np.concatenate([self.box, boxes[good]])
        self.row = np.concatenate([self.row, rows[good]])
        self.floor = np.concatenate([self.floor, floor[good]])

    def strike(
        self, boxes: np.ndarray, rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return what is left of boxes, their rows, and the ceilings (R, C) of their cells."""
        p = self.problem
        for _ in range(ROUNDS):
            price, least = self._cheapest(boxes, rows)
            spare = (self.best.cost[rows] - least.sum(1))[:, None] + least
            boxes = price < spare[:, self.owner] - TINY
            if p.strike is not None:
                boxes = p.strike(boxes, rows)
            some = np.logical_or.reduceat(boxes, self.begin, axis=1).all(1)
            boxes, rows = boxes[some], rows[some]
            if not len(rows):
                break
            before = boxes.sum()
            high = np.full(boxes.shape, np.inf)
            for q, (bits, table) in enumerate(zip(p.bits, p.tables, strict=True)):
                _, cells = cell_ceilings(bits, table, boxes)
                high = np.minimum(high, cells + (p.const[rows, q] + p.slack[q])[:, None])
            boxes = boxes & (high >= 0)
            some = np.logical_or.reduceat(boxes, self.begin, axis=1).all(1)
            boxes, rows, high = boxes[some], rows[some], high[some]
            if boxes.sum() > 0.8 * before:
                break
        if not len(rows):
            return boxes, rows, np.zeros(boxes.shape)
        return boxes, rows, high

    def close(
        self, boxes: np.ndarray, rows: np.ndarray, high: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Try the cheapest point of each box; return the boxes that it does not settle."""
        price, least = self._cheapest(boxes, rows)
        point = self._points(price)
        good, maybe = self.problem.margin(point, rows)
        if self.problem.legal is not None:
            legal, might = self.problem.legal(point, rows)
            good, maybe = good & legal, maybe & might
        cost = least.sum(1)
        self.best.offer(rows[good], point[good], cost[good])
        single = (np.add.reduceat(boxes, self.begin, axis=1, dtype=np.int64) == 1).all(1)
        hidden = maybe & ~good & single
        np.minimum.at(self.grey, rows[hidden], cost[hidden])
        left = ~good & ~single
        return boxes[left], rows[left], high[left], point[left]

    def _points(self, price: np.ndarray) -> np.ndarray:
        """Return the cheapest cell of each axis (R, A); ties go to the earlier one."""
        out = np.empty((len(price), self.axes), dtype=np.int64)
        for a, (b, e) in enumerate(zip(self.begin, self.problem.offset[1:], strict=True)):
            out[:, a] = b + price[:, b:e].argmin(1)
        return out

    def split(
        self, boxes: np.ndarray, rows: np.ndarray, high: np.ndarray, point: np.ndarray
    ) -> None:
        """Split the axis whose cheapest cell promises least.

        Numbers: stay, below it, above it. A few labels: one part for each.
        """
        several = np.add.reduceat(boxes, self.begin, axis=1, dtype=np.int64) > 1
        promise = np.where(several, np.take_along_axis(high, point, 1), np.inf)
        if self.problem.blame is not None:
            blamed = self.problem.blame(point, rows) & several
            promise = np.where(blamed, promise - 1e6, promise)
        axis = promise.argmin(1)
        at = np.take_along_axis(point, axis[:, None], 1)
        own = self.owner == axis[:, None]
        each = self.masked[axis] & ((boxes & own).sum(1) <= FEW_LABELS)
        self.put(*_one_by_one(boxes[each], rows[each], own[each]))
        boxes, rows, own, at = boxes[~each], rows[~each], own[~each], at[~each]
        cell = np.arange(boxes.shape[1])
        for part in (cell == at, cell < at, cell > at):
            child = boxes & (~own | part)
            some = (child & own).any(1)
            self.put(child[some], rows[some])

    def run(self, expired: Callable[[], bool]) -> None:
        """Look at boxes until none is left, the limits are reached or the time is."""
        while not expired():
            boxes, rows = self.take()
            if not len(rows):
                break
            size = max(1, _CHUNK // 64 // max(len(self.owner), 1) + 64)
            for i in range(0, len(rows), size):
                part = slice(i, i + size)
                struck, their, high = self.strike(boxes[part], rows[part])
                if len(their):
                    self.split(*self.close(struck, their, high))

    def points(self) -> np.ndarray:
        """Return how many points the open boxes of each row hold, shape (n,)."""
        count = np.add.reduceat(self.box, self.begin, axis=1, dtype=np.int64)
        return np.bincount(
            self.row, weights=np.prod(count, axis=1, dtype=np.float64), minlength=len(self.nodes)
        )

    def proof(self) -> SearchProof:
        """Return what is proved by now."""
        return SearchProof.of(self.best, self.grey, self.row, self.floor, self.nodes)


def _one_by_one(
    boxes: np.ndarray, rows: np.ndarray, own: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return boxes (R, C) split into one part for each cell of an axis (R, C), and their rows."""
    which, cell = np.nonzero(boxes & own)
    child = boxes[which] & ~own[which]
    child[np.arange(len(which)), cell] = True
    return child, rows[which]


def branch_and_bound(
    problem: BoxProblem,
    best: Incumbents,
    *,
    nodes: int,
    expired: Callable[[], bool],
    width: int = 16,
) -> SearchProof:
    """Return the cheapest points and proved bounds of all rows.

    Args:
        problem: the rows.
        best: points that are known already; improved in place.
        nodes: most boxes per row.
        expired: asked between rounds; true ends the search.
        width: boxes of one row that are looked at together.
    """
    search = BoxSearch(problem, best, nodes, width)
    search.run(expired)
    return search.proof()
