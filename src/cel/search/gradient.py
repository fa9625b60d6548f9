"""Batched descent: every row has its own state, its own incumbent and its own end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from cel.search.budget import Budget
from cel.search.steppers import State, Stepper

__all__ = ["Accept", "Found", "RowFunction", "RowMap", "gradient_search", "row_gradient"]

RowFunction = Callable[[Tensor, Tensor], Tensor]
"""(points (a, d), row numbers (a,)) -> (a,)."""
RowMap = Callable[[Tensor, Tensor], Tensor]
"""(points (a, d), row numbers (a,)) -> points (a, d)."""
Accept = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(points, row numbers) -> (the points as the user will see them, whether they count)."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """The cheapest accepted point of each row.

    Attributes:
        x: (n, d), NaN where nothing was accepted.
        ok: (n,) bool.
        cost: (n,), infinite where nothing was accepted.
    """

    x: Tensor
    ok: Tensor
    cost: Tensor

    @classmethod
    def nothing(cls, like: Tensor) -> Found:
        """Return an empty answer for the rows of `like` (n, d)."""
        inf = torch.full_like(like[:, 0], torch.inf)
        none = torch.zeros(len(like), dtype=torch.bool, device=like.device)
        return cls(x=torch.full_like(like, torch.nan), ok=none, cost=inf)

    def better(self, other: Found) -> Found:
        """Return, row by row, the cheaper of two answers; ties keep this one."""
        use = other.cost < self.cost
        return Found(
            x=torch.where(use[:, None], other.x, self.x),
            ok=self.ok | other.ok,
            cost=torch.where(use, other.cost, self.cost),
        )


def row_gradient(loss: RowFunction, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return (losses (a,), gradients (a, d)); rows are summed, so their gradients never mix."""
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        value = loss(x, rows)
        (grad,) = torch.autograd.grad(value.sum(), x)
    return value.detach(), torch.nan_to_num(grad, nan=0.0, posinf=0.0, neginf=0.0)


def gradient_search(
    loss: RowFunction,
    start: Tensor,
    *,
    stepper: Stepper,
    project: RowMap,
    accept: Accept,
    cost: RowFunction,
    steps: int,
    check_every: int = 1,
    stop_at_first: bool = False,
    patience: int | None = None,
    budget: Budget | None = None,
) -> Found:
    """Descend `loss` from `start` (n, d) and keep the cheapest accepted point of each row.

    Acceptance is tested on the point as it will be returned (snapped, decoded), every
    `check_every` steps and after the last one. A row ends when it is accepted and `stop_at_first`
    is set, or when it has been accepted and its best cost has not improved by a relative 1e-5 for
    `patience` steps. Ended rows leave the batch when more than half have ended.
    """
    best = Found.nothing(start)
    rows = torch.arange(len(start), device=start.device)
    x, state = start.detach().clone(), stepper.start(start)
    live = torch.ones(len(start), dtype=torch.bool, device=start.device)
    stale = torch.zeros(len(start), device=start.device)
    for step in range(1, steps + 1):
        _, grad = row_gradient(loss, x, rows)
        x = project(stepper.step(state, x, grad, rows), rows).detach()
        if step % check_every and step != steps:
            continue
        best, improved = _keep(best, x, rows, accept, cost)
        stale = torch.where(improved, torch.zeros_like(stale), stale + check_every)
        if stop_at_first:
            live &= ~best.ok[rows]
        elif patience is not None:
            live &= ~(best.ok[rows] & (stale >= patience))
        if not bool(live.any()) or (budget is not None and budget.expired):
            break
        if int(live.sum()) * 2 <= len(live):
            x, state, rows, stale, live = _compact(x, state, rows, stale, live)
    return best


def _keep(
    best: Found, x: Tensor, rows: Tensor, accept: Accept, cost: RowFunction
) -> tuple[Found, Tensor]:
    with torch.no_grad():
        seen, ok = accept(x, rows)
        price = torch.where(ok, cost(seen, rows), torch.full_like(seen[:, 0], torch.inf))
    old = best.cost[rows]
    better = price < old
    improved = better & ~(price > old * (1 - 1e-5))
    chosen = rows[better]
    kept = Found(x=best.x.clone(), ok=best.ok.clone(), cost=best.cost.clone())
    kept.x[chosen], kept.cost[chosen] = seen[better], price[better]
    kept.ok[chosen] = True
    return kept, improved


def _compact(
    x: Tensor, state: State, rows: Tensor, stale: Tensor, live: Tensor
) -> tuple[Tensor, State, Tensor, Tensor, Tensor]:
    keep = live.nonzero()[:, 0]
    return x[keep], state.select(keep), rows[keep], stale[keep], live[keep]
