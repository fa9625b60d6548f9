"""Cheapest choices under linear demands: intervals, grids and options, one program per row.

Each row chooses an offset for every number (in an interval, perhaps on a grid, perhaps at a fixed
charge for moving at all) and one option for every label, so that linear forms of the choices reach
given gaps. With one form this is the multiple-choice knapsack problem (Sinha and Zoltners, 1979).

Any non-negative mixture of the forms is a demand that every solution meets. Under one demand the
cheapest *shares* of choices come from a sort: take what gains most per cost first. That is a lower
bound for every mixture; with several forms the mixture is that of the prices of a linear program.
At most one choice is then fractional, and the search branches on it. Rows advance together; all
sums are in float64, and floors are lowered by a relative 1e-9 before they count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cel.solvers.choice_bounds import evaluate
from cel.solvers.choice_programs import (
    EQUAL,
    GRID,
    SAFE,
    ChoicePrograms,
    ChoiceStates,
    broken_rule,
    meets,
    on_grid,
    pick_option,
    tidy,
)

__all__ = ["ChoicePrograms", "ChoiceStates", "Chosen", "cheapest_choices", "split_parts"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Chosen:
    """Answers to n programs, the cheapest `count` whose sets of changes do not contain another.

    Attributes:
        offset: (n, count, q), NaN where there is none.
        option: (n, count, g), -1 where there is none.
        cost: (n, count), infinite where there is none.
        bound: (n,) proved lower bound of the first cost; infinite where there is no choice at all.
        nodes: (n,) parts that were looked at.
    """

    offset: np.ndarray
    option: np.ndarray
    cost: np.ndarray
    bound: np.ndarray
    nodes: np.ndarray

    @property
    def infeasible(self) -> np.ndarray:
        """(n,) bool, rows that are proved to have no choice."""
        return np.isposinf(self.bound)


def cheapest_choices(
    programs: ChoicePrograms,
    *,
    count: int = 1,
    nodes: int = 20_000,
    expired: Callable[[], bool] = lambda: False,
) -> Chosen:
    """Solve all programs exactly, best parts first.

    Args:
        programs: the programs.
        count: answers per row, in order of their cost; none changes all that an earlier one does.
        nodes: parts that a row may look at.
        expired: whether to stop.
    """
    p, n = programs, len(programs)
    out = _nothing_yet(p, count)
    found, spare = np.zeros(n, dtype=np.int64), _Spare(p)
    unsure = np.full(n, np.nan)  # floors of parts too narrow to be split, yet not decided
    queue = evaluate(p, _roots(p))
    spare.offer(queue)
    while len(queue):
        going = np.isfinite(queue.floor) & (found[queue.row] < count)
        if count == 1:  # what cannot be cheaper than a known choice need not be looked at
            going &= queue.floor < spare.limit()[queue.row]
        queue = queue.pick(going)
        best = _lowest_of_rows(queue)
        out.nodes[queue.row[best]] += 1
        tired = (out.nodes[queue.row[best]] > nodes) | expired()
        ends, lowest = queue.row[best][tired], queue.floor[best][tired]
        out.bound[ends] = np.where(found[ends] > 0, out.bound[ends], lowest)
        found[ends] = count
        top = queue.pick(best[~tired])
        rest = np.ones(len(queue), dtype=bool)
        rest[best] = False
        again = _supersets(p, out, top)
        done = top.whole & (again < 0)
        _record(p, out, found, top.pick(done))
        again[done] = found[top.row[done]] - 1  # other answers of the part change something less
        more = top.whole & (found[top.row] < count)
        children = _children(p, top.pick(more), out, again[more])
        rest_ = top.pick(~top.whole)
        lost = broken_rule(p, rest_.row, rest_.option) >= 0
        narrow = rest_.pick((rest_.split < 0) & ~lost & (rest_.upper > rest_.lower).any(1))
        np.fmin.at(unsure, narrow.row, narrow.floor)
        open_ = evaluate(
            p, ChoiceStates.join([top.pick(top.row < 0), *children, *split_parts(p, rest_)])
        )
        spare.offer(open_)
        queue = ChoiceStates.join([queue.pick(rest), open_])
    cut = np.isnan(out.bound)
    out.bound[cut] = spare.limit()[cut] if count == 1 else np.inf
    out.bound[:] = np.fmin(out.bound, unsure)
    spare.fill(out)
    return out


def _nothing_yet(p: ChoicePrograms, count: int) -> Chosen:
    n = len(p)
    return Chosen(
        offset=np.full((n, count, p.w.shape[2]), np.nan),
        option=np.full((n, count, p.price.shape[1]), -1),
        cost=np.full((n, count), np.inf),
        bound=np.full(n, np.nan),
        nodes=np.zeros(n, dtype=np.int64),
    )


class _Spare:
    """The cheapest choice of each row that was met on the way, for rows that run out of nodes."""

    def __init__(self, p: ChoicePrograms) -> None:
        self.p = p
        self.cost = np.full(len(p), np.inf)
        self.offset = np.zeros((len(p), p.w.shape[2]))
        self.option = np.zeros((len(p), p.price.shape[1]), dtype=np.int64)

    def fill(self, out: Chosen) -> None:
        """Give rows without an answer the choice that was met on the way."""
        late = np.isposinf(out.cost[:, 0]) & np.isfinite(self.cost)
        out.offset[late, 0], out.option[late, 0] = self.offset[late], self.option[late]
        out.cost[late, 0] = self.cost[late]

    def limit(self) -> np.ndarray:
        """Return the floors (n,) at which parts cannot hold anything cheaper."""
        return np.asarray(self.cost * (1 - SAFE) - SAFE)

    def offer(self, states: ChoiceStates) -> None:
        """Round the relaxed solutions up and keep what is a choice."""
        if not len(states):
            return
        p, row = self.p, states.row
        offset = on_grid(p, row, states.offset, states.lower, states.upper)
        valid = meets(p, row, offset, states.option) & np.isfinite(states.floor)
        cost = np.where(valid, p.cost(row, offset, states.option), np.inf)
        order = np.lexsort((cost, row))
        first = np.ones(len(row), dtype=bool)
        first[1:] = row[order][1:] != row[order][:-1]
        best = order[first]
        best = best[cost[best] < self.cost[row[best]]]
        self.cost[row[best]] = cost[best]
        self.offset[row[best]], self.option[row[best]] = offset[best], states.option[best]


def _roots(p: ChoicePrograms) -> ChoiceStates:
    n, q, g = len(p), p.w.shape[2], p.price.shape[1]
    lower, upper = p.lower.copy(), p.upper.copy()
    if p.gap.shape[1] == 1:  # under one demand, moving the wrong way is never worth it
        lower[p.w[:, 0] >= 0] = 0.0
        upper[p.w[:, 0] <= 0] = 0.0
    rows = np.arange(n)
    states = ChoiceStates(
        row=rows, lower=lower, upper=upper, moving=np.zeros((n, q), dtype=bool),
        allowed=np.isfinite(p.price), floor=np.zeros(n), offset=np.zeros((n, q)),
        option=np.zeros((n, g), dtype=np.int64), whole=np.zeros(n, dtype=bool),
        split=np.zeros(n, dtype=np.int64), at=np.zeros(n),
    )  # fmt: skip
    return tidy(p, states)


def split_parts(p: ChoicePrograms, s: ChoiceStates) -> list[ChoiceStates]:
    """Return the parts of states that are not whole; together they miss no choice."""
    s = s.pick(s.split >= 0)
    q = p.w.shape[2]
    number = s.pick(s.split < q)
    return [*_split_numbers(p, number), *_split_labels(p, s.pick(s.split >= q))]


def _split_numbers(p: ChoicePrograms, s: ChoiceStates) -> list[ChoiceStates]:
    if not len(s):
        return []
    rows, j = np.arange(len(s)), s.split
    step, phase = p.step[j], p.phase[s.row, j]
    unit = np.where(step > 0, step, 1.0)
    below = np.where(step > 0, phase + unit * np.floor((s.at - phase) / unit + GRID), s.at)
    above = np.where(step > 0, phase + unit * np.ceil((s.at - phase) / unit - GRID), s.at)
    above = np.where((step > 0) & (above <= below), below + unit, above)
    between = (step > 0) & (below < 0) & (above > 0)  # home lies between two grid points
    below, above = np.where(between, 0.0, below), np.where(between & (s.at < 0), 0.0, above)
    below = np.where(between & (s.at < 0), phase + unit * np.floor((s.at - phase) / unit), below)
    idle = (step == 0) & ~s.moving[rows, j] & (p.charge[s.row, j] > EQUAL)
    idle &= (s.lower[rows, j] <= 0) & (s.upper[rows, j] >= 0)
    return [
        tidy(p, _with(s, upper=(rows, j, np.where(idle, 0.0, below)), still=idle)),
        tidy(p, _with(s, lower=(rows, j, np.where(idle, 0.0, above)), go=idle)),
        tidy(p, _with(s, upper=(rows, j, np.zeros(len(s))), go=idle)).pick(
            idle & (s.lower[rows, j] < 0)
        ),
    ]


def _with(
    s: ChoiceStates,
    *,
    lower: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    upper: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    still: np.ndarray | None = None,
    go: np.ndarray | None = None,
) -> ChoiceStates:
    """Return the states with another end of the interval on which they are split."""
    low, high, moving = s.lower.copy(), s.upper.copy(), s.moving.copy()
    rows, j = np.arange(len(s)), s.split
    if lower is not None:
        low[rows, j] = np.maximum(low[rows, j], lower[2])
    if upper is not None:
        high[rows, j] = np.minimum(high[rows, j], upper[2])
    if still is not None:
        low[rows[still], j[still]] = 0.0
    if go is not None:
        moving[rows[go], j[go]] = True
    return replace(s, lower=low, upper=high, moving=moving)


def _split_labels(p: ChoicePrograms, s: ChoiceStates) -> list[ChoiceStates]:
    if not len(s):
        return []
    rows, label = np.arange(len(s)), s.split - p.w.shape[2]
    price, allowed = p.price[s.row, label], s.allowed[rows, label]
    chosen = price[rows, s.at.astype(np.int64)][:, None]
    cheaper = allowed & (price < chosen - EQUAL)
    dearer = allowed & ~cheaper
    lone = ~cheaper.any(1)  # all at the price of the chosen one or above: take it, or another
    only = np.zeros_like(allowed)
    only[rows, s.at.astype(np.int64)] = True
    first = np.where(lone[:, None], only & allowed, cheaper)
    second = np.where(lone[:, None], allowed & ~only, dearer)
    parts = []
    for mask in (first, second):
        whole = s.allowed.copy()
        whole[rows, label] = mask
        parts.append(replace(s, allowed=whole))
    return parts


def _children(
    p: ChoicePrograms, s: ChoiceStates, out: Chosen, again: np.ndarray
) -> list[ChoiceStates]:
    """Split states whose solution changes all that an earlier answer does: hold one of these."""
    parts = []
    for i, number in enumerate(again):
        row = s.row[i]
        moved = np.abs(out.offset[row, number]) > EQUAL
        stays = p.price[row] == 0.0
        switched = ~np.take_along_axis(stays, out.option[row, number][:, None], 1)[:, 0]
        one = s.pick(np.array([i]))
        for j in np.flatnonzero(moved):
            low, high = one.lower.copy(), one.upper.copy()
            low[0, j], high[0, j] = max(low[0, j], 0.0), min(high[0, j], 0.0)
            if not one.moving[0, j]:
                parts.append(replace(one, lower=low, upper=high))
        for label in np.flatnonzero(switched):
            allowed = one.allowed.copy()
            allowed[0, label] &= stays[label]
            parts.append(replace(one, allowed=allowed))
    return parts


def _supersets(p: ChoicePrograms, out: Chosen, s: ChoiceStates) -> np.ndarray:
    """Return (s,) the answer whose changes a solution contains, -1 for none."""
    again = np.full(len(s), -1)
    moved = np.abs(s.offset) > EQUAL
    switched = pick_option(p.price[s.row], s.option) > 0
    for number in range(out.cost.shape[1]):
        known = np.isfinite(out.cost[s.row, number]) & s.whole
        before = np.abs(np.nan_to_num(out.offset[s.row, number])) > EQUAL
        option = np.maximum(out.option[s.row, number], 0)
        labels = pick_option(p.price[s.row], option) > 0
        inside = (moved | ~before).all(1) & (switched | ~labels).all(1)
        again = np.where(known & inside & (again < 0), number, again)
    return again


def _record(p: ChoicePrograms, out: Chosen, found: np.ndarray, s: ChoiceStates) -> None:
    """Keep whole states as the next answers of their rows; there is at most one per row."""
    row, number = s.row, found[s.row]
    out.offset[row, number], out.option[row, number] = s.offset, s.option
    out.cost[row, number] = p.cost(row, s.offset, s.option)
    first = number == 0
    out.bound[row[first]] = np.fmin(out.bound[row[first]], s.floor[first])
    found[row] += 1


def _lowest_of_rows(s: ChoiceStates) -> np.ndarray:
    """Return the position of the state with the lowest floor of each row."""
    order = np.lexsort((~s.whole, s.floor, s.row))
    first = np.ones(len(s), dtype=bool)
    first[1:] = s.row[order][1:] != s.row[order][:-1]
    return order[first]
