"""A direction in words: shifts in original units, scalars, and the cumulative rules chart."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cel.cf_methods.global_methods.globe_ce_path import NEVER, Directions
from cel.cf_methods.global_methods.globe_ce_scalars import Scalars
from cel.cf_methods.problem import Problem
from cel.cf_methods.units import Unit
from cel.cf_methods.wording import Term

__all__ = ["direction_unit", "rules_chart"]

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
CHART_LINES = 50


def direction_unit(problem: Problem, direction: Directions, answer: Scalars, number: int) -> Unit:
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


def _effects(problem: Problem, direction: Directions) -> tuple[Term, ...]:
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


def rules_chart(problem: Problem, direction: Directions, answer: Scalars) -> list[dict[str, Any]]:
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


def _breakpoints(problem: Problem, direction: Directions) -> list[tuple[float, list[str]]]:
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
