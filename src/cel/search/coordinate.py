"""Coordinate search over the cells of a tree ensemble: one axis at a time, all rows together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cel.search.leaf_bits import LeafBits
from cel.search.profiles import Demand, profile, sums_at

__all__ = ["Incumbents", "Moves", "coordinate_search", "lower"]

TINY = 1e-9


class Moves(Protocol):
    """Prices of points and of single moves; see `cel.cf_methods.ensembles.CellTable`."""

    @property
    def home(self) -> np.ndarray:
        """(n, A) cells of the rows."""
        ...

    def cost(self, cells: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the price of points (R, A) of some rows."""
        ...

    def moves(self, cells: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return what single moves add, shape (R, C), infinite where they are not allowed."""
        ...


@dataclass
class Incumbents:
    """The cheapest points found so far.

    Attributes:
        cells: (n, A), meaningless where the cost is infinite.
        cost: (n,).
    """

    cells: np.ndarray
    cost: np.ndarray

    @classmethod
    def nothing(cls, home: np.ndarray) -> Incumbents:
        """Return no points for rows with the given home cells (n, A)."""
        return cls(home.copy(), np.full(len(home), np.inf))

    def offer(self, rows: np.ndarray, cells: np.ndarray, cost: np.ndarray) -> None:
        """Take points (R, A) that are cheaper than what their rows have; rows may repeat."""
        good = np.flatnonzero(cost < self.cost[rows] - TINY)
        # the last write wins: the cheapest of a row comes last, earlier ones lose ties
        order = good[np.lexsort((-good, -cost[good]))]
        self.cells[rows[order]] = cells[order]
        self.cost[rows[order]] = cost[order]


@dataclass(frozen=True)
class _Engine:
    bits: LeafBits
    demand: Demand
    moves: Moves
    owner: np.ndarray
    axes: np.ndarray | None = None

    def look(self, cells: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (margins after, prices added by) every single move of the points."""
        after = self.demand.margin(self._sums(cells), rows)
        return after, self.moves.moves(cells, rows)

    def _sums(self, cells: np.ndarray) -> np.ndarray:
        return profile(self.bits, self.demand.tables, cells, self.axes)

    def moved(self, cells: np.ndarray, to: np.ndarray) -> np.ndarray:
        """Return points (R, A) with one axis moved to the cells `to` (R,)."""
        out = cells.copy()
        out[np.arange(len(cells)), self.owner[to]] = to
        return out


def coordinate_search(
    bits: LeafBits,
    demand: Demand,
    moves: Moves,
    *,
    starts: int = 6,
    steps: int = 12,
    polish: int = 4,
    rank: np.ndarray | None = None,
    extra: tuple[np.ndarray, np.ndarray] | None = None,
    second_try: bool = True,
    axes: np.ndarray | None = None,
    hopeless: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Incumbents:
    """Return the cheapest points that a few greedy walks find, lowered and exchanged.

    Each walk begins with one of the best first moves and goes on with the move of the largest
    gain per price; before each move, every single move that would meet the demand is a candidate.
    The winners are lowered (moves that save and keep the demand) and exchanged (one axis back
    home, another one in its place) until nothing improves.

    Args:
        bits: bits of the cells.
        demand: what must be met.
        moves: prices.
        starts: first moves that are followed.
        steps: longest walk.
        polish: rounds of lowering and exchanging.
        rank: (n,) which one of the best first moves each row follows alone, instead of `starts`;
            nothing is exchanged then, so that different first moves stay different answers.
        extra: (points (R, A), their rows (R,)) that are lowered, too, where they suffice.
        second_try: whether rows that no walk answers are walked again, from a first move along
            every axis.
        axes: (k,) the axes along which rows can move, ascending; all by default.
        hopeless: row numbers (m,) to whether these rows are known to have no answer (m,); asked
            about rows that no single move answers, which are then not walked.
    """
    owner = np.repeat(np.arange(len(bits.boxes.offset) - 1), np.diff(bits.boxes.offset))
    engine = _Engine(bits, demand, moves, owner, axes)
    found = Incumbents.nothing(moves.home)
    rows = np.arange(len(moves.home))
    if not len(rows):
        return found
    cells = moves.home.copy()
    margin = demand.margin(sums_at(bits, demand.tables, cells), rows)
    after, added = engine.look(cells, rows)
    if rank is None:
        _complete(engine, found, cells, rows, np.zeros(len(rows)), after, added)
    first = _best_first(_worth(after, added, margin), owner, starts, rank)  # (n, S)
    if hopeless is not None:
        open_ = np.flatnonzero(np.isinf(found.cost))
        first[open_[hopeless(open_)]] = -1
    walk, at = np.nonzero(first >= 0)
    _walk(engine, found, engine.moved(cells[walk], first[walk, at]), rows[walk], steps)
    lost = np.flatnonzero(np.isinf(found.cost))
    if second_try and rank is None and len(lost):
        # No single move gains: go where the margin is least bad along each axis, and look again.
        least = np.where(np.isfinite(added[lost]), np.exp(np.clip(after[lost], -30, 0)), 0.0)
        first = _best_first(least, owner, len(np.unique(owner)), None)
        walk, at = np.nonzero(first >= 0)
        _walk(engine, found, engine.moved(cells[lost[walk]], first[walk, at]), lost[walk], steps)
    if extra is not None:
        points, their = extra
        inside = demand.margin(sums_at(bits, demand.tables, points), their) >= 0
        points, their = _lower(engine, points[inside], their[inside])
        found.offer(their, points, moves.cost(points, their))
    _polish(engine, found, polish, exchange=rank is None)
    return found


def _best_first(
    worth: np.ndarray, owner: np.ndarray, starts: int, rank: np.ndarray | None
) -> np.ndarray:
    """Return (n, starts) first moves: the best of each axis, best axes first, -1 for none."""
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    best = np.maximum.reduceat(worth, begins, axis=1)  # (n, A)
    order = np.argsort(-best, axis=1, kind="stable")
    if rank is None:
        order = order[:, :starts]
    else:
        order = np.take_along_axis(order, np.minimum(rank, order.shape[1] - 1)[:, None], 1)
    out = np.full(order.shape, -1)
    ends = np.append(begins[1:], len(owner))
    for a, (b, e) in enumerate(zip(begins, ends, strict=True)):
        row, place = np.nonzero((order == a) & (np.take_along_axis(best, order, 1) > 0))
        out[row, place] = b + worth[row, b:e].argmax(1)
    return out


def _worth(after: np.ndarray, added: np.ndarray, margin: np.ndarray) -> np.ndarray:
    """Return gain per price of every move; 0 where a move gains nothing or is not allowed."""
    gain = np.minimum(after, 0.0) - np.minimum(margin, 0.0)[:, None]
    return np.where(np.isfinite(added) & (gain > 0), gain / np.maximum(added, TINY), 0.0)


def _complete(
    engine: _Engine,
    found: Incumbents,
    cells: np.ndarray,
    rows: np.ndarray,
    cost: np.ndarray,
    after: np.ndarray,
    added: np.ndarray,
) -> None:
    """Offer the cheapest single move of each point that meets the demand."""
    price = np.where(after >= 0, added, np.inf)
    best = price.argmin(1)
    total = cost + np.take_along_axis(price, best[:, None], 1)[:, 0]
    good = np.isfinite(total)
    found.offer(rows[good], engine.moved(cells[good], best[good]), total[good])


def _walk(
    engine: _Engine, found: Incumbents, cells: np.ndarray, rows: np.ndarray, steps: int
) -> None:
    """Follow points by the move of the largest gain per price; they leave when too dear."""
    for _ in range(steps):
        cost = engine.moves.cost(cells, rows)
        alive = cost < found.cost[rows] - TINY
        cells, rows, cost = cells[alive], rows[alive], cost[alive]
        if not len(rows):
            return
        after, added = engine.look(cells, rows)
        _complete(engine, found, cells, rows, cost, after, added)
        margin = np.take_along_axis(after, cells[:, :1], 1)[:, 0]
        worth = _worth(after, added, margin)
        best = worth.argmax(1)
        go = (np.take_along_axis(worth, best[:, None], 1)[:, 0] > 0) & (margin < 0)
        cells, rows = engine.moved(cells[go], best[go]), rows[go]


def lower(
    bits: LeafBits,
    demand: Demand,
    moves: Moves,
    cells: np.ndarray,
    rows: np.ndarray,
    owner: np.ndarray,
    steps: int = 60,
) -> tuple[np.ndarray, np.ndarray]:
    """Return points (R, A) after the moves that save most while the demand stays met."""
    return _lower(_Engine(bits, demand, moves, owner), cells, rows, steps)


def _lower(
    engine: _Engine, cells: np.ndarray, rows: np.ndarray, steps: int = 60
) -> tuple[np.ndarray, np.ndarray]:
    cells = cells.copy()
    todo = np.arange(len(rows))
    for _ in range(steps):
        if not len(todo):
            break
        after, added = engine.look(cells[todo], rows[todo])
        saving = np.where(after >= 0, added, np.inf)
        best = saving.argmin(1)
        better = np.take_along_axis(saving, best[:, None], 1)[:, 0] < -TINY
        todo = todo[better]
        cells[todo] = engine.moved(cells[todo], best[better])
    return cells, rows


def _polish(engine: _Engine, found: Incumbents, rounds: int, *, exchange: bool) -> None:
    rows = np.flatnonzero(np.isfinite(found.cost))
    for _ in range(rounds):
        if not len(rows):
            return
        before = found.cost[rows].copy()
        cells, _ = _lower(engine, found.cells[rows], rows)
        found.offer(rows, cells, engine.moves.cost(cells, rows))
        if exchange:
            _exchange(engine, found, rows)
        rows = rows[found.cost[rows] < before - TINY]


def _exchange(engine: _Engine, found: Incumbents, rows: np.ndarray) -> None:
    """Send each changed axis home and look for the cheapest single move that makes up for it."""
    home = engine.moves.home
    which, axis = np.nonzero(found.cells[rows] != home[rows])
    cells = found.cells[rows][which]
    cells[np.arange(len(which)), axis] = home[rows[which], axis]
    at = rows[which]
    after, added = engine.look(cells, at)
    cost = engine.moves.cost(cells, at)
    _complete(engine, found, cells, at, cost, after, added)
