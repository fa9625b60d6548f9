"""Tests of robustness: under every small change of the weights, and of local stability."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cel.cf_methods.query import Query
from cel.cf_methods.tangent.margins import output_demands
from cel.models.relu_view import ReluView
from cel.search.gradient import RowFunction
from cel.search.relu_bounds import margin_floors

__all__ = ["certified_delta", "stability", "weight_margin"]

VALUES = 2**22  # numbers of noisy copies that exist at a time
HALVINGS = 20


def weight_margin(query: Query, view: ReluView, delta: float) -> RowFunction:
    """Return the smallest margin that all weights and biases within `delta` leave a point.

    Exact for linear models and one hidden layer, a lower bound for deeper networks.
    """
    mix, shift = output_demands(query)

    @torch.no_grad()
    def margin(x: Tensor, rows: Tensor) -> Tensor:
        at = rows.cpu()
        floors = margin_floors(view.layers, x.double().cpu(), mix[at], delta) + shift[at]
        return floors.amin(1).to(x)

    return margin


def certified_delta(query: Query, view: ReluView, x: Tensor, most: float = 1.0) -> Tensor:
    """Return (n,) up to which change of the weights points (n, d) keep their class, by bisection.

    Points without the class at all get 0; what holds beyond `most` is not looked for.
    """
    mix, shift = output_demands(query)
    points = x.double().cpu()
    low, high = torch.zeros(len(x), dtype=torch.float64), torch.full((len(x),), most).double()
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        floors = margin_floors(view.layers, points, mix, middle[:, None]) + shift
        holds = (floors > 0).all(1)
        low, high = torch.where(holds, middle, low), torch.where(holds, high, middle)
    return low.to(x)


def stability(query: Query, sigma: float, draws: int) -> RowFunction:
    """Return the mean over noisy copies x_i of a point x' of `p(x_i) - |p(x') - p(x_i)|`.

    p is the probability of the wanted class; numbers get Gaussian noise, categories none. The
    noise of a row is always the same, so that one point has one answer.
    """
    numeric = query.region.layout.numeric

    @torch.no_grad()
    def score(x: Tensor, rows: Tensor) -> Tensor:
        size = max(1, VALUES // max(x.shape[1] * draws, 1))
        parts = [_stable(x[at], rows[at]) for at in torch.split(_count(x), size)]
        return torch.cat(parts) if parts else x[:, 0]

    def _stable(x: Tensor, rows: Tensor) -> Tensor:
        noise = query.rng.select(rows).normal(draws, x.shape[1]).to(x) * numeric
        copies = (x[:, None] + sigma * noise).flatten(0, 1)
        target = query.target[rows]
        there = _probability(query, copies, target.repeat_interleave(draws)).reshape(-1, draws)
        here = _probability(query, x, target)
        return (there - (here[:, None] - there).abs()).mean(1)

    return score


def _count(x: Tensor) -> Tensor:
    return torch.arange(len(x), device=x.device)


def _probability(query: Query, x: Tensor, target: Tensor) -> Tensor:
    scores = query.model.scores(x)
    log: Tensor = scores.gather(1, target[:, None])[:, 0] - scores.logsumexp(1)
    return log.clamp(max=math.log(1.0)).exp()
