"""How far each row goes along each shift: the shortest way to the class, then to plausibility."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cel.cf_methods.explanations.edits import BinCost
from cel.cf_methods.global_methods.globe_ce.path import Directions, Scalars, smallest_scalars
from cel.cf_methods.group_methods.group_ppcef.shift_objective import ShiftObjective
from cel.cf_methods.query import Query

__all__ = ["ShiftAnswers", "answers_along"]

FURTHER = 16  # scalars between the boundary and the end of the way
HALVINGS = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class ShiftAnswers:
    """What K shifts do for n rows.

    Attributes:
        x: (K, n, d) answers, NaN where there is none.
        cost: (K, n) in bins, infinite where there is none.
        plausible: (K, n) bool, whether the answer reaches the level of log-density.
    """

    x: Tensor
    cost: Tensor
    plausible: Tensor

    def best(self) -> Tensor:
        """Return the shift of each row, (n,): the cheapest plausible one, else the cheapest."""
        far = torch.where(self.cost.isfinite(), self.cost, torch.inf)
        return torch.where(self.plausible, far, far + 1e6).argmin(0)


def answers_along(
    directions: Directions,
    objective: ShiftObjective,
    price: BinCost,
    *,
    grid: int,
    fixed: Tensor | None,
) -> ShiftAnswers:
    """Move the rows of an objective along directions, as far as they need.

    Args:
        directions: K directions of unit cost.
        objective: has the rows, their targets and their levels.
        price: cost in bins.
        grid: scalars of the search for the boundary of the class.
        fixed: (K,) the one scalar of each direction, or None to search for each row's.
    """
    query = objective.query
    parts = []
    for number in range(len(directions)):
        one = directions.select([number])
        if fixed is not None:
            parts.append(_at_once(one, objective, price, fixed[number]))
            continue
        found = smallest_scalars(one, query, price, clip=True, count=grid, steps=20)
        parts.append(_towards_plausible(one, objective, price, found))
    x, cost, good = (torch.stack(list(p)) for p in zip(*parts, strict=True))
    return ShiftAnswers(x=x, cost=cost, plausible=good)


def _at_once(
    one: Directions, objective: ShiftObjective, price: BinCost, k: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    query = objective.query
    x, ok = _placed(one, query, price, k.expand(len(query)))
    good = ok & objective.plausible(x, query.rows())
    return _kept(x, ok, good, query, price)


def _kept(
    x: Tensor, ok: Tensor, good: Tensor, query: Query, price: BinCost
) -> tuple[Tensor, Tensor, Tensor]:
    cost = torch.where(ok, price(query.x, x), torch.inf)
    return torch.where(ok[:, None], x, torch.nan), cost, good


def _placed(one: Directions, query: Query, price: BinCost, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return the snapped points (n, d) of given scalars (n,), and whether they are accepted."""
    points = one.settled(query.region, k[None], price)[0]
    return query.accept(points, query.rows())


def _towards_plausible(
    one: Directions, objective: ShiftObjective, price: BinCost, found: Scalars
) -> tuple[Tensor, Tensor, Tensor]:
    """Go on from the boundary to the first point that is plausible, too, if there is one.

    Scalars from the boundary to the end of the way are looked at in order; between the last one
    that fails and the first that holds the way is halved.
    """
    query = objective.query
    x, cost = found.x.clone(), found.cost.clone()
    good = torch.zeros_like(found.ok)
    rows = found.ok.nonzero()[:, 0]
    if not len(rows):
        return x, cost, good
    part = _on(objective, rows)
    last = one.largest(price).clamp(min=1e-3)[0]
    first = found.k[rows].clamp(min=1e-6)
    share = torch.linspace(0, 1, FURTHER, dtype=first.dtype, device=first.device)
    ks = first[:, None] * (last / first).clamp(min=1)[:, None] ** share
    at = _first_that_holds(one, part, price, ks)
    hit = (at >= 0).nonzero()[:, 0]
    if not len(hit):
        return x, cost, good
    part, at, ks = _on(part, hit), at[hit, None], ks[hit]
    high, low = ks.gather(1, at)[:, 0], ks.gather(1, (at - 1).clamp(min=0))[:, 0]
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        fine = _holds(one, part, price, middle)
        low, high = torch.where(fine, low, middle), torch.where(fine, middle, high)
    seen, _ = _placed(one, part.query, price, high)
    won = rows[hit]
    x[won], cost[won], good[won] = seen, price(query.x[won], seen), True
    return x, cost, good


def _first_that_holds(
    one: Directions, objective: ShiftObjective, price: BinCost, ks: Tensor
) -> Tensor:
    """Return the place (n,) of the first scalar of each row (n, c) that holds, -1 for none."""
    at = torch.full_like(ks[:, 0], -1, dtype=torch.long)
    live = objective.query.rows()
    for place, k in enumerate(ks.T):
        part = objective if len(live) == len(at) else _on(objective, live)
        fine = _holds(one, part, price, k[live])
        at[live[fine]] = place
        live = live[~fine]
        if not len(live):
            break
    return at


def _on(objective: ShiftObjective, rows: Tensor) -> ShiftObjective:
    query = objective.query.select(rows)
    demand = replace(objective.demand, query=query, level=objective.demand.level[rows])
    return replace(objective, query=query, demand=demand)


def _holds(one: Directions, objective: ShiftObjective, price: BinCost, k: Tensor) -> Tensor:
    x, ok = _placed(one, objective.query, price, k)
    at = ok.nonzero()[:, 0]
    if len(at):
        ok[at] = objective.plausible(x[at], at)
    return ok
