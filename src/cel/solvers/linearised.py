"""Repeated linearisation: solve the problem exactly for the tangent of the model, move, repeat.

Where a linear model can be solved exactly (`cel.solvers.halfspaces`), a trust region around it
reaches a stationary point of the same problem as a weighted descent in tens of model calls
instead of thousands (sequential linear programming; Fletcher and Sainz de la Maza, 1989).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from cel.search.budget import Budget
from cel.search.gradient import Accept, Found, RowFunction
from cel.solvers.closed_forms import Nearest
from cel.solvers.halfspaces import nearest_all

__all__ = ["Demands", "Linearise", "Solve", "linearised_search"]

Linearise = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(points (a, d), row numbers (a,)) -> (surplus (a, c), gradients (a, c, d)); want: all >= 0."""
Solve = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Nearest]
"""(w (a, c, d), gap (a, c), lower, upper (a, d), row numbers (a,)) -> offsets, duals (a, c)."""

NEAR = 1e-3  # points whose surplus is at least minus this are worth an acceptance test
SMALLEST_RADIUS = 1e-4
SMALLEST_GAIN = 1e-6
REPAIRS = 6
ROUNDINGS = 6
BOOSTS = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class Demands:
    """Minimise a cost around `center` subject to c surpluses >= 0 inside a box, for n rows.

    Attributes:
        linearise: surpluses and their gradients.
        solve: the cheapest offset from the centre for linear surpluses inside a box.
        accept: acceptance test on the point as it will be returned.
        cost: cost of a point, used for the merit and to compare accepted points.
        center: (n, d) where the cost is least.
        lower: (n, d) smallest values.
        upper: (n, d) largest values.
        width: (d,) units of the trust region.
        grid: (d,) grid widths, 0 for none; points rounded the way that helps are tested too.
        aside: so many last surpluses are not minded when points are rounded.
        lean: leave columns that cannot move out of programs of repair, see `nearest_all`.
    """

    linearise: Linearise
    solve: Solve
    accept: Accept
    cost: RowFunction
    center: Tensor
    lower: Tensor
    upper: Tensor
    width: Tensor
    grid: Tensor
    aside: int = 0
    lean: bool = False

    @property
    def rounds(self) -> bool:
        """Whether any column is rounded to a grid."""
        return bool((self.grid > 0).any())

    def helpful(self, surplus: Tensor, slope: Tensor) -> Tensor:
        """Return grid widths (a, d), signed so that they help the smallest surplus."""
        which = surplus[:, : surplus.shape[1] - self.aside].argmin(1)
        return slope[torch.arange(len(which), device=which.device), which].sign() * self.grid

    def offer(self, best: Found, x: Tensor, rows: Tensor) -> None:
        """Offer points to the incumbents."""
        best.offer(x, rows, self.accept, self.cost)


@dataclass
class _Linearised:
    """Where the rows of the search stand; the first axis of every tensor runs over rows."""

    rows: Tensor  # (a,)
    x: Tensor  # (a, d)
    surplus: Tensor  # (a, c)
    slope: Tensor  # (a, c, d)
    radius: Tensor  # (a,)
    penalty: Tensor  # (a, c) cost of a missing unit of surplus in the merit
    boosts: Tensor  # (a,) how often the penalties were raised because the row was stuck
    live: Tensor  # (a,) bool; ended rows may stay in the batch but move no more

    def select(self, keep: Tensor) -> _Linearised:
        return _Linearised(**{f.name: getattr(self, f.name)[keep] for f in fields(self)})


def linearised_search(
    demands: Demands, start: Tensor, *, steps: int, radius: float, budget: Budget | None = None
) -> Found:
    """Search from `start` (n, d) with at most `steps` linearisations per row.

    Args:
        demands: what is wanted.
        start: first points.
        steps: model linearisations.
        radius: first radius of the trust region, in widths.
        budget: ends the search early.
    """
    best, ends = Found.nothing(start), start.clone()
    if not len(start):
        return best
    state = _begin(demands, start, radius)
    _test(demands, best, state, start, state.surplus, state.slope)
    for _ in range(steps):
        trial, plan = _propose(demands, state)
        surplus, slope = demands.linearise(trial, state.rows)
        _test(demands, best, state, trial, surplus, slope)
        gain = _judge(demands, state, plan, trial, surplus, slope)
        state.live &= _goes_on(state, gain, radius)
        ends[state.rows] = state.x
        if not bool(state.live.any()) or (budget is not None and budget.expired):
            break
        if int(state.live.sum()) * 4 <= 3 * len(state.live):
            state = state.select(state.live.nonzero()[:, 0])
    budget = budget or Budget()
    _repair(demands, best, ends, budget)
    if demands.rounds and not budget.expired:
        _round(demands, best, ends, budget)
    return best


def _begin(demands: Demands, start: Tensor, radius: float) -> _Linearised:
    rows = torch.arange(len(start), device=start.device)
    surplus, slope = demands.linearise(start, rows)
    return _Linearised(
        rows=rows,
        x=start,
        surplus=surplus,
        slope=slope,
        radius=torch.full_like(surplus[:, 0], radius),
        penalty=torch.zeros_like(surplus),
        boosts=torch.zeros_like(surplus[:, 0]),
        live=torch.ones_like(rows, dtype=torch.bool),
    )


def _propose(demands: Demands, s: _Linearised) -> tuple[Tensor, Nearest]:
    center, lower, upper = (t[s.rows] for t in (demands.center, demands.lower, demands.upper))
    reach = s.radius[:, None] * demands.width
    low, high = torch.maximum(lower, s.x - reach), torch.minimum(upper, s.x + reach)
    gap = (s.slope * (s.x - center)[:, None]).sum(-1) - s.surplus
    plan = demands.solve(s.slope, gap, low - center, high - center, s.rows)
    trial = torch.minimum(torch.maximum(center + plan.delta, lower), upper)
    return torch.where(trial.isfinite(), trial, s.x), plan


def _judge(
    demands: Demands, s: _Linearised, plan: Nearest, trial: Tensor, surplus: Tensor, slope: Tensor
) -> Tensor:
    """Move rows whose merit falls, adapt the radii, return the relative gains that were promised.

    The merit is `cost + penalty * missing surplus`; the penalty is kept above twice the dual
    value, so that a step that closes the gap is worth its cost.
    """
    here, there = demands.cost(s.x, s.rows), demands.cost(trial, s.rows)
    missing = (-s.surplus).clamp(min=0)
    expected = s.surplus + (s.slope * (trial - s.x)[:, None]).sum(-1)
    progress = missing - (-expected).clamp(min=0)
    s.penalty = _penalty(s.penalty, plan, there - here, progress)
    promised = here - there + (s.penalty * progress).sum(1)
    delivered = here - there + (s.penalty * (missing - (-surplus).clamp(min=0))).sum(1)
    ratio = delivered / promised.clamp(min=1e-12)
    better = s.live & (delivered > 0) & (ratio > 1e-3)
    moved = ((trial - s.x).abs() / demands.width).amax(1)
    s.x = torch.where(better[:, None], trial, s.x)
    s.slope = torch.where(better[:, None, None], slope, s.slope)
    s.surplus = torch.where(better[:, None], surplus, s.surplus)
    grown = torch.where(ratio > 0.75, torch.maximum(s.radius, 2 * moved), s.radius)
    s.radius = torch.where(ratio < 0.25, torch.minimum(s.radius, moved) / 3, grown)
    return promised / (here + (s.penalty * missing).sum(1)).clamp(min=1e-12)


def _penalty(old: Tensor, plan: Nearest, dearer: Tensor, progress: Tensor) -> Tensor:
    """Raise penalties (a, c) to twice the duals, and so far that the step is worth its cost."""
    dual = torch.where(plan.feasible[:, None], 2 * plan.dual, torch.zeros_like(old))
    raised = torch.maximum(old, dual)
    gained = progress.clamp(min=0).sum(1)
    lacking = (2 * dearer - (raised * progress).sum(1)).clamp(min=0) / gained.clamp(min=1e-12)
    more = torch.where((gained > 1e-9) & ~plan.feasible, lacking, torch.zeros_like(lacking))
    return raised + more[:, None] * (progress > 0)


def _goes_on(s: _Linearised, gain: Tensor, radius: float) -> Tensor:
    """Tell which rows have not settled; rows that settled outside try again, minding demands more.

    A minimum of the merit outside the wanted side means that the penalties are too small.
    """
    moving = (s.radius > SMALLEST_RADIUS) & (gain > SMALLEST_GAIN)
    again = ~moving & (s.surplus < -NEAR).any(1) & (s.boosts < BOOSTS)
    s.boosts = s.boosts + again
    s.penalty = torch.where(again[:, None], 10 * s.penalty, s.penalty)
    s.radius = torch.where(again, torch.full_like(s.radius, radius / 10), s.radius)
    return moving | again


def _test(
    demands: Demands, best: Found, s: _Linearised, x: Tensor, surplus: Tensor, slope: Tensor
) -> None:
    """Offer the points that are near enough to the wanted side."""
    near = (s.live & (surplus >= -NEAR).all(1)).nonzero()[:, 0]
    rows = s.rows[near]
    demands.offer(best, x[near], rows)
    if demands.rounds:
        moved = x[near] != demands.center[rows]
        shift = 0.499 * demands.helpful(surplus[near], slope[near]) * moved
        demands.offer(best, x[near] + shift, rows)


def _repair(demands: Demands, best: Found, x: Tensor, budget: Budget) -> None:
    """Carry end points that miss the boundary by a little over it, in the columns that moved.

    At a kink of the model every tangent overestimates the surplus, and the path ends just outside.
    """
    rows = torch.arange(len(x), device=x.device)
    for step in range(REPAIRS):
        left = demands.cost(x, rows) < best.cost[rows] * (1 - 1e-4)
        x, rows = x[left], rows[left]
        if not len(rows) or budget.expired:
            return
        surplus, slope = demands.linearise(x, rows)
        gap = (-surplus).clamp(min=0) * (1.2 + 0.4 * step)
        slope = slope * (x != demands.center[rows])[:, None]
        room = demands.lower[rows] - x, demands.upper[rows] - x
        x = x + nearest_all(slope, gap, *room, lean=demands.lean).delta
        demands.offer(best, x, rows)


def _round(demands: Demands, best: Found, x: Tensor, budget: Budget) -> None:
    """Find how far moved columns must be shifted the helpful way before they are rounded."""
    rows = torch.arange(len(x), device=x.device)
    shift = demands.helpful(*demands.linearise(x, rows)) * (x != demands.center)
    low, high = torch.zeros_like(x[:, :1]), torch.ones_like(x[:, :1])
    for _ in range(ROUNDINGS):
        if budget.expired:
            return
        middle = (low + high) / 2
        seen, ok = demands.accept(x + middle * shift, rows)
        best.offer(
            seen[ok], rows[ok], lambda p, _: (p, torch.ones_like(p[:, 0]) > 0), demands.cost
        )
        low, high = torch.where(ok[:, None], low, middle), torch.where(ok[:, None], middle, high)
