"""Which directions are kept, and how they are told."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cel.cf_methods.explanations.cohort import Cohort
from cel.cf_methods.explanations.edits import CHUNK_VALUES
from cel.cf_methods.explanations.units import Unit
from cel.cf_methods.explanations.wording import Term
from cel.cf_methods.global_methods.globe_ce.path import NEVER, Directions, Scalars, reach
from cel.cf_methods.query import Query

__all__ = ["choose_directions", "direction_unit", "greedy", "row_costs", "rules_chart"]

SCREEN = (64, 8)  # rows and scalars of the first look at all candidates
FINAL = (256, 12)  # rows and scalars for those that are left
KEPT = 48


def choose_directions(
    directions: Directions, problem: Cohort, *, count: int, clip: bool, magnitude: float | None
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
        worth = (1 - cost / problem.bin_cost.largest).clamp(min=0)
        if magnitude is not None:
            worth = worth + cost.isfinite().to(worth)
        if rows == SCREEN[0]:
            best = worth.mean(1).argsort(descending=True, stable=True)[:KEPT]
            kept = kept.select(best)
    return kept.select(greedy(worth, count))


def row_costs(
    directions: Directions,
    query: Query,
    problem: Cohort,
    *,
    scalars: int,
    clip: bool,
    magnitude: float | None = None,
) -> Tensor:
    """Return the cost (D, n) of the first scalar that works on a coarse grid, inf if none does."""
    n, d = query.x.shape
    bounds = problem.bin_cost if clip else None
    grid = directions.grid(problem.bin_cost, scalars, clip)
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
            paid = torch.where(ok, problem.bin_cost(query.x, points), torch.inf)
            best = torch.where(best.isinf(), paid, best)
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


QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
CHART_LINES = 50


def direction_unit(problem: Cohort, direction: Directions, answer: Scalars, number: int) -> Unit:
    """Describe ONE direction and what it does for the fitted rows."""
    scalars = answer.k[answer.ok].double()
    spread = torch.quantile(scalars, torch.tensor(QUANTILES, dtype=torch.float64).to(scalars))
    chart = rules_chart(problem, direction, answer)
    return Unit(
        id=number,
        kind="direction",
        effects=_effects(problem, direction),
        cost=float(answer.cost[answer.ok].mean()) if bool(answer.ok.any()) else float("nan"),
        coverage=float(answer.ok.double().mean()),
        correctness=1.0 if bool(answer.ok.any()) else 0.0,
        details={
            "scalars": {f"{q:.0%}": float(v) for q, v in zip(QUANTILES, spread, strict=True)}
            if len(scalars)
            else {},
            "chart": chart,
        },
    )


def _effects(problem: Cohort, direction: Directions) -> tuple[Term, ...]:
    """Numbers move by this much per unit of the scalar; categories move to their goal."""
    terms = []
    for f in problem.space:
        columns = list(f.columns)
        if f.one_hot:
            leave = direction.leave[0, columns]
            if bool((leave < NEVER).any()):
                terms.append(
                    Term(f.name, "=", f.categories[int(direction.goal[0, columns].argmax())])
                )
        elif float(direction.shift[0, columns[0]]):
            amount = float(direction.shift[0, columns[0]])
            terms.append(Term(f.name, "+", problem.wording.shift(f, amount)))
    return tuple(terms)


def rules_chart(problem: Cohort, direction: Directions, answer: Scalars) -> list[dict[str, Any]]:
    """Return the cumulative rules of the categorical part, one line per breakpoint.

    Each line says which categories join at this scalar, and how many rows are helped with
    scalars up to the next line's, at which mean cost.
    """
    steps = _breakpoints(problem, direction)[:CHART_LINES]
    ends = [*(k for k, _ in steps), float("inf")][1:]
    lines = []
    for (k, rules), end in zip(steps, ends, strict=True):
        helped = answer.ok & (answer.k < end)
        lines.append(
            {
                "scalar": k,
                "rules": rules,
                "newly_covered": float((helped & (answer.k >= k)).double().mean()),
                "coverage": float(helped.double().mean()),
                "cost": _mean(answer.cost[helped]),
            }
        )
    return lines


def _breakpoints(problem: Cohort, direction: Directions) -> list[tuple[float, list[str]]]:
    """Return (scalar, rules that begin there), ascending."""
    joins: dict[float, list[str]] = {}
    for f in problem.space.one_hot_features:
        columns = list(f.columns)
        goal = f.categories[int(direction.goal[0, columns].argmax())]
        leave = direction.leave[0, columns].tolist()
        by_scalar: dict[float, list[Any]] = {}
        for label, k in zip(f.categories, leave, strict=True):
            if k < NEVER:
                by_scalar.setdefault(float(f"{k:.6g}"), []).append(label)
        for k, labels in by_scalar.items():
            rule = f"{Term(f.name, 'in', tuple(labels))} -> {goal}"
            joins.setdefault(k, []).append(rule)
    return sorted(joins.items())


def _mean(values: Tensor) -> float:
    return float(values.mean()) if len(values) else float("nan")
