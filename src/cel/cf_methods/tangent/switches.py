"""Changes of categories, tried one by one: their effect is known exactly, without relaxation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from cel.cf_methods.tangent.nearest_point import NearestPoint
from cel.search import Found
from cel.space.layout import by_feature

__all__ = ["search_with_switches", "switched"]

SPARE = (0.1, 0.4, 1.0)  # of the gap at the row


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


def _with_spare(problem: NearestPoint, share: float) -> NearestPoint:
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
    base, rows = problem.missing(now, query.rows()), query.rows()
    spent = (problem.cost.switch * now).sum(1)
    best, column = torch.zeros_like(base), torch.full_like(rows, -1)
    for j in open_.any(0).nonzero()[:, 0].tolist():
        at = (open_[:, j] & (base > 0)).nonzero()[:, 0]
        trial = torch.where(lay.owner == lay.owner[j], torch.zeros_like(now[at]), now[at])
        trial[:, j] = 1.0
        gain = base[at] - problem.missing(trial, at)
        price = (problem.cost.switch[at] * trial).sum(1) - spent[at]
        score = gain / price.clamp(min=1e-3)
        better = score > best[at]
        best[at[better]], column[at[better]] = score[better], j
    return column


def _same_block(x: Tensor, origin: Tensor, owner: Tensor) -> Tensor:
    """Return (n, d) bool: columns of features that are as in the origin."""
    moved = by_feature((x - origin).abs(), owner, int(owner.max()) + 1)
    return (moved == 0)[:, owner]
