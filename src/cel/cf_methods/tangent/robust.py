"""Margins that hold for a whole set of models, or for imprecise answers."""

from __future__ import annotations

import torch
from torch import Tensor

from cel.cf_methods.query import Query
from cel.cf_methods.tangent.costs import SeparableCost
from cel.cf_methods.tangent.margins import AIM, class_margins
from cel.cf_methods.tangent.nearest_point import NearestPoint
from cel.search.gradient import Accept
from cel.solvers import row_jacobian
from cel.solvers.least_change import RowOutputs

__all__ = ["accept_margins", "noisy_margins", "robust_problem", "shifted_margins"]


def robust_problem(query: Query, margins: RowOutputs, unit: Tensor | float) -> NearestPoint:
    """Return the problem of the cheapest point, in L1 of units (d,), with robust margins."""
    cost = SeparableCost.around(query.region, l1=1 / unit, l2=False, change=1.0, center=query.x)
    return NearestPoint(
        query=query, cost=cost, margins=margins, accept=accept_margins(query, margins), aim=AIM
    )


def shifted_margins(query: Query, delta: float, ball: str) -> RowOutputs:
    """Return margins (a, K - 1) of the worst model near the tangent of the explained one.

    For a linear score `w.x + b` the worst of all shifts of (w, b) by at most `delta` costs
    `delta (|x|_1 + 1)` in the maximum norm and `delta sqrt(|x|_2^2 + 1)` in the Euclidean norm.
    With two classes one weight vector counts, the difference of both; with more each class has its
    own, and the loss doubles.

    Args:
        query: rows and targets.
        delta: size of the shift.
        ball: "linf" or "l2".
    """
    plain = class_margins(query)
    size = delta * (1 if query.model.n_outputs == 2 else 2)
    positive = bool((query.region.lower >= 0).all())

    def margins(x: Tensor, rows: Tensor) -> Tensor:
        if ball == "l2":
            lost = (x.square().sum(-1) + 1).sqrt()
        else:  # a sum is linear at 0, too, where absolute values have no slope
            lost = (x if positive else x.abs()).sum(-1) + 1
        return plain(x, rows) - size * lost[:, None]

    return margins


def noisy_margins(query: Query, sigma: float, depth: Tensor) -> RowOutputs:
    """Return margins (a, K - 1) less `depth` standard deviations of what noise on x does to them.

    First order: noise of size sigma on the free numbers moves a margin by sigma times the length
    of its slope there.

    Args:
        query: rows and targets.
        sigma: standard deviation of the noise in encoded units.
        depth: (n,) how many standard deviations each row must be clear of the boundary.
    """
    plain = class_margins(query)
    free = query.region.layout.numeric & ~query.region.fixed

    def margins(x: Tensor, rows: Tensor) -> Tensor:
        with torch.enable_grad():
            known, slopes = row_jacobian(plain, x.detach(), rows)
        length: Tensor = (slopes.detach() * free[rows][:, None]).norm(dim=-1)
        here = plain(x, rows) if torch.is_grad_enabled() else known
        return here - sigma * depth[rows, None] * length

    return margins


def accept_margins(query: Query, margins: RowOutputs) -> Accept:
    """Return the test of the query with all `margins` not negative on the snapped point."""

    @torch.no_grad()
    def clear(x: Tensor, rows: Tensor) -> Tensor:
        return margins(x, rows).amin(1) >= 0

    return query.accept_if(clear)
