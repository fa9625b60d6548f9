"""The smallest scalar of every row along one direction: grid first, then bisection."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cel.cf_methods.edits import Price
from cel.cf_methods.global_methods.globe_ce_path import Directions
from cel.cf_methods.query import MARGIN, Query
from cel.protocols import Task

__all__ = ["Scalars", "reach", "smallest_scalars"]

PRECISION = 2e-7  # of a scalar
SLICE = 8  # scalars tried at a time; rows that succeed leave


@dataclass(frozen=True, kw_only=True, eq=False)
class Scalars:
    """Per row: the point (n, d) with NaN, whether it was found, its scalar and its cost."""

    x: Tensor
    ok: Tensor
    k: Tensor
    cost: Tensor


def reach(points: Tensor, query: Query) -> tuple[Tensor, Tensor]:
    """Ask the model about points (e, n, d): (gone far enough (e, n), accepted (e, n)).

    For classes both are the same. For values "far enough" means that the prediction has come
    within a fifth of the tolerance of the target, or passed it.
    """
    e, n, d = points.shape
    scores = query.model.scores(points.reshape(e * n, d))
    target = query.target.expand(e, *query.target.shape).reshape(e * n, *query.target.shape[1:])
    ok = query.model.margin_of(scores, target).reshape(e, n) >= MARGIN
    if query.model.task is Task.CLASSIFICATION:
        return ok, ok
    gap = (scores - target).reshape(e, n)
    start = query.model.scores(query.x) - query.target
    passed = gap * -start[:, 0].sign() >= -query.model.tolerance / 5
    return passed, ok


def smallest_scalars(
    direction: Directions, query: Query, price: Price, *, clip: bool, count: int, steps: int
) -> Scalars:
    """Find the first scalar that works for each row, then bisect down to the boundary.

    Flips need not be monotone in the scalar: the bracket is (last scalar before the first
    success, first success], with every corner of the path among the scalars.

    Args:
        direction: ONE direction.
        query: the rows.
        price: cost in bins.
        clip: whether numbers stay in the training range.
        count: size of the geometric grid.
        steps: bisections.
    """
    n = len(query)
    bounds = price if clip else None
    grid = direction.grid(price, count, clip)[0]
    own = direction.breakpoints(query.region, bounds)
    ks = torch.cat([grid.expand(n, -1), own.clamp(max=float(grid[-1]))], 1).sort(1).values
    low, high, spare = _bracket(direction, query, bounds, ks)
    rows = high.isfinite().nonzero()[:, 0]
    part, lo, hi = query.select(rows), low[rows], high[rows]
    leaving = direction.leaving(part.x)
    for _ in range(steps):
        if query.budget.expired or not bool((hi - lo > PRECISION * hi).any()):
            break
        middle = (lo + hi) / 2
        far, _ = reach(direction.settled(part.region, middle[None], bounds, leaving), part)
        hi = torch.where(far[0], middle, hi)
        lo = torch.where(far[0], lo, middle)
    high[rows] = hi
    best = _accepted(direction, query, bounds, high, price)
    return _cheaper(best, _accepted(direction, query, bounds, spare, price))


def _bracket(
    direction: Directions, query: Query, bounds: Price | None, ks: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (low, high, first accepted) of every row; infinite where there is none."""
    high = torch.full_like(query.x[:, 0], torch.inf)
    low, spare = torch.zeros_like(high), high.clone()
    live = query.rows()
    for start in range(0, ks.shape[1], SLICE):
        if not len(live) or query.budget.expired:
            break
        part = query if len(live) == len(query) else query.select(live)
        k = ks[live, start : start + SLICE]
        leaving = direction.leaving(part.x)
        points = [direction.settled(part.region, c[None], bounds, leaving)[0] for c in k.T]
        far, ok = reach(torch.stack(points), part)
        before = torch.cat([low[live, None], k[:, :-1]], 1)
        first = far.to(torch.uint8).argmax(0)[:, None]
        hit = far.any(0)
        high[live] = torch.where(hit, k.gather(1, first)[:, 0], torch.inf)
        low[live] = torch.where(hit, before.gather(1, first)[:, 0], k[:, -1])
        fits = k.gather(1, ok.to(torch.uint8).argmax(0)[:, None])[:, 0]
        spare[live] = torch.minimum(spare[live], torch.where(ok.any(0), fits, torch.inf))
        live = live[~hit]
    return low, high, spare


def _accepted(
    direction: Directions, query: Query, bounds: Price | None, k: Tensor, price: Price
) -> Scalars:
    """Build, snap and verify the points of given scalars."""
    rows = k.isfinite().nonzero()[:, 0]
    x = torch.full_like(query.x, torch.nan)
    ok = torch.zeros_like(rows.new_empty(len(query)), dtype=torch.bool)
    cost = torch.full_like(k, torch.inf)
    if len(rows):
        part = query.select(rows)
        point = direction.settled(part.region, k[rows][None], bounds)[0]
        seen, good = query.accept(point, rows)
        kept = rows[good]
        x[kept], ok[kept], cost[kept] = seen[good], True, price(query.x[kept], seen[good])
    return Scalars(x=x, ok=ok, k=torch.where(ok, k, torch.nan), cost=cost)


def _cheaper(a: Scalars, b: Scalars) -> Scalars:
    """Keep `a` where it was found, else `b`."""
    return Scalars(
        x=torch.where(a.ok[:, None], a.x, b.x),
        ok=a.ok | b.ok,
        k=torch.where(a.ok, a.k, b.k),
        cost=torch.where(a.ok, a.cost, b.cost),
    )
