"""The cost and the test of counterfactuals that are guided by prototypes."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from cel.cf_methods.query import MARGIN, Query
from cel.cf_methods.tangent.costs import SeparableCost
from cel.objectives import probability_margin
from cel.search.gradient import Accept

__all__ = ["accept_guided", "distance_cost", "pulled"]


def distance_cost(query: Query, beta: float, apart: Tensor) -> SeparableCost:
    """Return `beta |d|_1 + |d|_2^2`, categories at the distances `apart` (d, d)."""
    cost = SeparableCost.around(query.region, l1=beta, l2=True, change=1.0, center=query.x)
    prices = query.x @ (beta * apart + apart.square())
    return replace(cost, switch=torch.where(cost.numeric, torch.zeros_like(prices), prices))


def pulled(cost: SeparableCost, prototypes: Tensor, theta: float, apart: Tensor) -> SeparableCost:
    """Add `theta |x' - prototype|^2` to a cost."""
    prices = theta * prototypes @ apart.square()
    prices = torch.where(cost.numeric, torch.zeros_like(prices), prices)
    return replace(cost, pull=prototypes, theta=theta, switch=cost.switch + prices)


def accept_guided(
    query: Query, kappa: float, trust: float, old: Tensor | None, new: Tensor
) -> Accept:
    """Return a test for the wanted class with a margin of probabilities and a trust ratio.

    Args:
        query: rows and targets.
        kappa: least `p_t - max_{k != t} p_k`.
        trust: least ratio of the distances to `old` and `new`; 0 for any.
        old: (n, d) prototypes of the present class, not needed without trust.
        new: (n, d) prototypes of the target class.
    """

    def accept(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        seen: Tensor = query.region.select(rows).snap(x)
        scores, wanted = query.model.scores(seen), query.target[rows]
        ok = query.model.margin_of(scores, wanted) >= MARGIN
        ok &= probability_margin(scores, wanted) >= kappa
        if trust and old is not None:
            far, close = (seen - old[rows]).norm(dim=1), (seen - new[rows]).norm(dim=1)
            ok &= far >= trust * close
        return seen, ok

    return accept
