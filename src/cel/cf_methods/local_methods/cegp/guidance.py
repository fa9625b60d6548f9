"""The cost and the test of counterfactuals that are guided by prototypes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from cel.cf_methods.query import MARGIN, Query, TrainRows
from cel.cf_methods.tangent.costs import SeparableCost
from cel.cf_methods.tangent.prototypes import encoded_prototypes
from cel.objectives import hinge, probability_margin, reconstruction_error
from cel.search.gradient import RowFunction, SnapTest

__all__ = [
    "accept_guided",
    "distance_cost",
    "encoded_pull",
    "logit_margin",
    "pulled",
    "rebuilt",
    "shortfall",
    "summed",
]


def distance_cost(query: Query, beta: float, apart: Tensor) -> SeparableCost:
    """Return `beta |d|_1 + |d|_2^2`, categories at the distances `apart` (d, d).

    The authors map each category to one number (multidimensional scaling to two dimensions, then
    one) and round back; here the relaxed one-hot block pays the *expected* cost, which is exact at
    every decodable row, where a single number distorts the distances as soon as a feature has
    three categories that do not lie on a line.
    """
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
) -> SnapTest:
    """Return a test for the wanted class with a margin of probabilities and a trust ratio.

    Args:
        query: rows and targets.
        kappa: least `p_t - max_{k != t} p_k`.
        trust: least ratio of the distances to `old` and `new`; 0 for any.
        old: (n, d) prototypes of the present class, not needed without trust.
        new: (n, d) prototypes of the target class.
    """

    def judge(seen: Tensor, rows: Tensor) -> Tensor:
        scores, wanted = query.model.scores(seen), query.target[rows]
        ok = query.model.margin_of(scores, wanted) >= MARGIN
        ok &= probability_margin(scores, wanted) >= kappa
        if trust and old is not None:
            far, close = (seen - old[rows]).norm(dim=1), (seen - new[rows]).norm(dim=1)
            ok &= far >= trust * close
        return ok

    return SnapTest(query.snap, judge)


def encoded_pull(
    query: Query,
    train: TrainRows,
    encode: Callable[[Tensor], Tensor],
    theta: float,
    k: int | None,
) -> RowFunction:
    """Return `theta |enc(x) - prototype|^2` with prototypes of the target class in code space."""
    with torch.no_grad():
        pool, codes = encode(train.x.to(query.x)), encode(query.x)
        goal = encoded_prototypes(codes, query.target, pool, train.y.to(query.x.device), k)
        goal = torch.where(goal.isnan(), codes, goal)
    return lambda x, rows: theta * reconstruction_error(encode(x), goal[rows])


def shortfall(query: Query, aim: float) -> RowFunction:
    """Return by how much the margin of probabilities misses `aim`."""

    def short(x: Tensor, rows: Tensor) -> Tensor:
        return hinge(probability_margin(query.model.logits(x), query.target[rows]), aim)

    return short


def rebuilt(again: Callable[[Tensor], Tensor], gamma: float) -> RowFunction:
    """Return `gamma |x - AE(x)|^2`."""
    return lambda x, rows: gamma * reconstruction_error(x, again(x))


def summed(terms: Sequence[RowFunction]) -> RowFunction:
    """Return the sum of row functions."""
    return lambda x, rows: torch.stack([term(x, rows) for term in terms]).sum(0)


def logit_margin(kappa: float) -> float:
    """Return the margin in logits that equals a margin of probabilities of two classes."""
    return math.log((1 + kappa) / (1 - kappa))
