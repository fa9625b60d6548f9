"""Margins that hold for a whole set of models, or for imprecise answers."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from cel.cf_methods.query import Query
from cel.cf_methods.tangent.costs import SeparableCost
from cel.cf_methods.tangent.ladder import Rung
from cel.cf_methods.tangent.margins import AIM, class_margins
from cel.cf_methods.tangent.nearest_point import NearestPoint
from cel.cf_methods.tangent.switches import search_with_switches
from cel.search import Found
from cel.search.gradient import Accept, RowFunction
from cel.solvers import row_jacobian
from cel.solvers.least_change import RowOutputs

__all__ = [
    "accept_margins",
    "keeping_relations",
    "kept_relations",
    "noisy_margins",
    "robust_problem",
    "shifted_margins",
]


def robust_problem(query: Query, margins: RowOutputs, unit: Tensor | float) -> NearestPoint:
    """Return the problem of the cheapest point, in L1 of units (d,), with robust margins.

    Linear relations between features are part of the programs of linear models: robust answers
    move far, and what snapping takes back to keep a relation is often all that was gained. With
    networks that doubles the time for little; see `keeping_relations`.
    """
    cost = SeparableCost.around(query.region, l1=1 / unit, l2=False, change=1.0, center=query.x)
    return NearestPoint(
        query=query,
        cost=cost,
        margins=margins,
        accept=accept_margins(query, margins),
        aim=AIM,
        also=kept_relations(query) if query.model.linear() is not None else (),
    )


def kept_relations(query: Query) -> tuple[RowFunction, ...]:
    """Return one surplus (a,) for each linear relation between features.

    A row that breaks a relation may go on breaking it, but not by more.
    """
    rules, bounds = query.region.layout.relations, query.region.layout.bounds
    most = torch.maximum(bounds.expand(len(query), -1), query.x @ rules.T)

    def surplus(number: int) -> RowFunction:
        return lambda x, rows: most[rows, number] - x @ rules[number]

    return tuple(surplus(i) for i in range(len(rules)))


def keeping_relations(steps: int) -> Rung:
    """Solve tangents once more with linear relations between features among the demands."""

    def rung(problem: NearestPoint) -> Found:
        relations = kept_relations(problem.query)
        if problem.also or not relations:
            return Found.nothing(problem.query.x)
        return search_with_switches(replace(problem, also=relations), steps=steps)

    return rung


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
