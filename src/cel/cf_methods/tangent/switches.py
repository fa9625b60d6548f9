"""Changes of categories, tried one by one: their effect is known exactly, without relaxation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from cel.cf_methods.tangent.nearest_point import NearestPoint
from cel.search import Found
from cel.space.layout import by_feature

__all__ = ["search_switches_together", "search_with_switches", "switched"]

SPARE = (0.1, 0.4, 1.0)  # of the gap at the row
_PAIRS = 2**21  # entries of the trials that are looked at together


def search_with_switches(problem: NearestPoint, *, steps: int, switches: int = 4) -> Found:
    """Solve the numbers through tangents, after 0, 1, ... changes of category; keep the cheapest.

    Args:
        problem: what to solve.
        steps: tangents per number of changes.
        switches: largest number of categories to change.
    """
    found = problem.tangent(problem.query.x, steps=steps)
    spent = problem.query.budget.expired
    if problem.has_categories and not spent:
        for start, rows in switched(problem, switches):
            if problem.query.budget.expired:
                break
            found.put_better(rows, problem.on(rows).tangent(start[rows], steps=steps))
    for share in SPARE:
        todo = (~found.ok).nonzero()[:, 0]
        if not len(todo) or problem.query.budget.expired:
            break
        harder = _with_spare(problem.on(todo), share)
        found.put_better(todo, harder.tangent(harder.query.x, steps=steps))
    return found


def search_switches_together(problem: NearestPoint, *, steps: int, switches: int = 4) -> Found:
    """Return what `search_with_switches` does, in three batches instead of one after the other.

    No change and one change come first. More changes are tried where they alone cost less than
    what is known by then, then all spare margins at once. A step of a few hundred rows takes
    hardly longer than one of a hundred; many rows save what need not be tried.

    Args:
        problem: what to solve.
        steps: tangents per number of changes.
        switches: largest number of categories to change.
    """
    query, found = problem.query, Found.nothing(problem.query.x)
    starts = [(query.x, query.rows())]
    if problem.has_categories and not query.budget.expired:
        starts += list(switched(problem, switches))
    for part in (starts[:2], starts[2:]):
        cheap = [(x, rows[_below(problem, found, x, rows)]) for x, rows in part]
        if query.budget.expired or not any(len(rows) for _, rows in cheap):
            break
        their = torch.cat([rows for _, rows in cheap])
        begin = torch.cat([x[rows] for x, rows in cheap])
        _put_parts(found, their, problem.on(their).tangent(begin, steps=steps), cheap)
    todo = (~found.ok).nonzero()[:, 0]
    if not len(todo) or query.budget.expired:
        return found
    shares = torch.tensor(SPARE).to(query.x).repeat_interleave(len(todo))
    harder = _with_spare(problem.on(todo.repeat(len(SPARE))), shares)
    told = harder.tangent(harder.query.x, steps=steps)
    _put_parts(found, todo.repeat(len(SPARE)), told, [(query.x, todo)] * len(SPARE))
    return found


def _below(problem: NearestPoint, found: Found, x: Tensor, rows: Tensor) -> Tensor:
    """Tell for which rows (m,) points of `x` (n, d) cost less than what is found."""
    return problem.cost.value(x[rows], rows) < found.cost[rows]


def _put_parts(
    found: Found, rows: Tensor, told: Found, parts: list[tuple[Tensor, Tensor]]
) -> None:
    """Take over the answers of searches that ran as one, one part after the other."""
    numbers = torch.arange(len(rows), device=rows.device)
    for at in torch.split(numbers, [len(r) for _, r in parts]):
        found.put_better(rows[at], told.select(at))


def _with_spare(problem: NearestPoint, share: float | Tensor) -> NearestPoint:
    """Ask for more margin than needed: what rounding and relations take back must be there."""
    with torch.no_grad():
        spare = share * (-problem.surplus(problem.query.x, problem.query.rows())).clamp(min=0)
    return replace(problem, margins=lambda x, rows: problem.margins(x, rows) - spare[rows, None])


@torch.no_grad()
def switched(problem: NearestPoint, switches: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Change the category that brings most per unit of cost, again and again.

    Yields:
        ((n, d) rows with some categories changed, row numbers that changed in this round).
    """
    query, region = problem.query, problem.query.region
    now = query.x.clone()
    for _ in range(switches):
        column = _best_column(problem, now)
        rows = (column >= 0).nonzero()[:, 0]
        if not len(rows):
            return
        owner = region.layout.owner
        block = owner[None] == owner[column[rows]][:, None]
        chosen = torch.nn.functional.one_hot(column[rows], now.shape[1]).to(now)
        now[rows] = torch.where(block, chosen, now[rows])
        yield now.clone(), rows


def _best_column(problem: NearestPoint, now: Tensor) -> Tensor:
    """Return (n,) the one-hot column to switch on, -1 where none helps."""
    query, region, lay = problem.query, problem.query.region, problem.query.region.layout
    open_ = region.reachable & ~region.fixed & ~lay.numeric & (now < 0.5)
    untouched = _same_block(now, query.x, lay.owner)
    open_ = open_ & untouched
    base = problem.missing(now, query.rows())
    spent = (problem.cost.switch * now).sum(1)
    score = torch.zeros_like(now)
    pairs = (open_ & (base > 0)[:, None]).nonzero()
    for at, j in (p.T for p in torch.split(pairs, max(1, _PAIRS // now.shape[1]))):
        trial = now[at].masked_fill(lay.owner == lay.owner[j][:, None], 0.0)
        trial[torch.arange(len(j), device=j.device), j] = 1.0
        gain = base[at] - problem.missing(trial, at)
        price = (problem.cost.switch[at] * trial).sum(1) - spent[at]
        score[at, j] = gain / price.clamp(min=1e-3)
    best, column = score.max(1)
    return torch.where(best > 0, column, -1)


def _same_block(x: Tensor, origin: Tensor, owner: Tensor) -> Tensor:
    """Return (n, d) bool: columns of features that are as in the origin."""
    moved = by_feature((x - origin).abs(), owner, int(owner.max()) + 1)
    return (moved == 0)[:, owner]
