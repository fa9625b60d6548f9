"""Choosing directions: the area under coverage against cost, then greedy for several."""

from __future__ import annotations

import torch
from torch import Tensor

from cel.cf_methods.edits import CHUNK_VALUES
from cel.cf_methods.global_methods.globe_ce_path import Directions
from cel.cf_methods.global_methods.globe_ce_scalars import reach
from cel.cf_methods.problem import Problem
from cel.cf_methods.query import Query

__all__ = ["choose_directions", "greedy", "row_costs"]

SCREEN = (64, 8)  # rows and scalars of the first look at all candidates
FINAL = (256, 12)  # rows and scalars for those that are left
KEPT = 48


def choose_directions(
    directions: Directions, problem: Problem, *, count: int, clip: bool, magnitude: float | None
) -> Directions:
    """Return the `count` directions that help most.

    Args:
        directions: all candidates.
        problem: what to fit on.
        count: how many to choose.
        clip: whether numbers stay in the training range.
        magnitude: judge by coverage at this one cost, as the paper does; None judges by the area
            under coverage against cost, over scalars of all sizes.
    """
    kept, worth = directions, torch.empty(0)
    for rows, scalars in (SCREEN, FINAL):
        part = problem.query.select(problem.sample(rows))
        cost = row_costs(kept, part, problem, scalars=scalars, clip=clip, magnitude=magnitude)
        worth = (1 - cost / problem.price.largest).clamp(min=0)
        if magnitude is not None:
            worth = worth + cost.isfinite().to(worth)
        if rows == SCREEN[0]:
            best = worth.mean(1).argsort(descending=True, stable=True)[:KEPT]
            kept = kept.select(best)
    return kept.select(greedy(worth, count))


def row_costs(
    directions: Directions,
    query: Query,
    problem: Problem,
    *,
    scalars: int,
    clip: bool,
    magnitude: float | None = None,
) -> Tensor:
    """Return the cost (D, n) of the first scalar that works on a coarse grid, inf if none does."""
    n, d = query.x.shape
    bounds = problem.price if clip else None
    grid = directions.grid(problem.price, scalars, clip)
    if magnitude is not None:
        grid = torch.full_like(grid[:, :1], magnitude)
    cost = torch.full((len(directions), n), torch.inf, dtype=query.x.dtype, device=query.x.device)
    size = max(1, CHUNK_VALUES // (n * d))
    for start in range(0, len(directions), size):
        some = slice(start, start + size)
        part, best = directions.select(some), cost[some]
        leaving = part.leaving(query.x)
        for k in grid[some].T:
            if query.budget.expired or not bool(best.isinf().any()):
                break
            points = part.settled(query.region, k[:, None].expand(-1, n), bounds, leaving)
            _, ok = reach(points, query)
            price = torch.where(ok, problem.price(query.x, points), torch.inf)
            best = torch.where(best.isinf(), price, best)
        cost[some] = best
    return cost


def greedy(worth: Tensor, count: int) -> Tensor:
    """Choose rows of `worth` (D, n) >= 0 that maximise the mean over n of the best chosen one.

    >>> greedy(torch.tensor([[1.0, 0.0], [0.6, 0.6], [0.0, 1.0]]), 2)
    tensor([1, 0])
    """
    best = torch.zeros_like(worth[0])
    chosen: list[int] = []
    for _ in range(min(count, len(worth))):
        gain = torch.maximum(worth, best).mean(1) - best.mean()
        if chosen and float(gain.max()) <= 1e-9:
            break
        chosen.append(int(gain.argmax()))
        best = torch.maximum(best, worth[chosen[-1]])
    return torch.tensor(chosen, device=worth.device)
