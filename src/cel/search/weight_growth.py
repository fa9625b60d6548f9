"""Per-row search for the weight at which a problem becomes solvable."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cel.search.budget import Budget
from cel.search.gradient import Found

__all__ = ["search_weight"]

Solve = Callable[[Tensor], Found]
"""Weights (n,) -> the answer of each row under its weight."""


def search_weight(
    solve: Solve,
    weight: Tensor,
    *,
    rounds: int,
    growth: float = 10.0,
    largest: float = 1e9,
    budget: Budget | None = None,
) -> Found:
    """Raise the weight of unsolved rows, lower that of solved rows, bisect in between.

    The weight multiplies the demand for validity: too small and a row stays where it is, too large
    and it overshoots. All answers compete; the cheapest accepted point of any round wins.

    Args:
        solve: solves all rows under given weights.
        weight: (n,) first weights.
        rounds: number of weights tried per row.
        growth: factor while only one side of the bracket is known.
        largest: weights are never raised beyond this.
        budget: ends the search early.
    """
    low, high = torch.zeros_like(weight), torch.full_like(weight, torch.inf)
    best: Found | None = None
    for _ in range(rounds):
        answer = solve(weight)
        best = answer if best is None else best.better(answer)
        high = torch.where(answer.ok, torch.minimum(high, weight), high)
        low = torch.where(answer.ok, low, torch.maximum(low, weight))
        if budget is not None and budget.expired:
            break
        both = high.isfinite() & (low > 0)
        between = (low.clamp(min=1e-12) * high).sqrt()
        weight = torch.where(both, between, torch.where(answer.ok, high / growth, low * growth))
        weight = weight.clamp(max=largest)
    if best is None:
        raise ValueError("rounds must be at least 1")
    return best
