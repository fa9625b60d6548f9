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
FEW = 8  # different changes of the weights that are tried one after the other
FIRST = 100  # copies that settle clear points
CLEAR = 6.0  # standard errors from the threshold
SPREAD = 0.1  # least standard deviation of a copy's share, where copies agree by chance


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
        holds = (_floors(view, points, mix, middle) + shift > 0).all(1)
        low, high = torch.where(holds, middle, low), torch.where(holds, high, middle)
    return low.to(x)


def _floors(view: ReluView, x: Tensor, mix: Tensor, delta: Tensor) -> Tensor:
    """Return margin floors (n, r) for a change (n,) of each point's own.

    One number for all points is much cheaper than one each: a bisection begins with few numbers.
    """
    values, group = torch.unique(delta, return_inverse=True)
    if len(values) > FEW:
        return margin_floors(view.layers, x, mix, delta[:, None])
    out = torch.empty_like(mix[..., 0])
    for number, value in enumerate(values.tolist()):
        at = (group == number).nonzero()[:, 0]
        out[at] = margin_floors(view.layers, x[at], mix[at], value)
    return out


def stability(
    query: Query, sigma: float, draws: int, clear_of: float | None = None
) -> RowFunction:
    """Return the mean over noisy copies x_i of a point x' of `p(x_i) - |p(x') - p(x_i)|`.

    p is the probability of the wanted class; numbers get Gaussian noise, categories none. The
    noise of a row is always the same, so that one point has one answer. With `clear_of`, points
    that lie six standard errors from that threshold after a hundred copies get the mean of these.
    """
    numeric = query.region.layout.numeric

    @torch.no_grad()
    def score(x: Tensor, rows: Tensor) -> Tensor:
        if clear_of is None or draws <= FIRST:
            return mean_of(x, rows, draws)[0]
        mean, error = mean_of(x, rows, FIRST)
        at = ((mean - clear_of).abs() < CLEAR * error).nonzero()[:, 0]
        mean[at] = mean_of(x[at], rows[at], draws)[0]
        return mean

    def mean_of(x: Tensor, rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
        size = max(1, VALUES // max(x.shape[1] * count, 1))
        parts = [_shares(x[at], rows[at], count) for at in torch.split(_count(x), size)]
        shares = torch.cat(parts) if parts else x[:, :1]
        spread = shares.std(1, unbiased=False).clamp(min=SPREAD)
        return shares.mean(1), spread / math.sqrt(count)

    def _shares(x: Tensor, rows: Tensor, count: int) -> Tensor:
        own, which = torch.unique(rows, return_inverse=True)
        noise = query.rng.select(own).normal(count, x.shape[1]).to(x) * numeric
        copies = (x[:, None] + sigma * noise[which]).flatten(0, 1)
        target = query.target[rows]
        there = _probability(query, copies, target.repeat_interleave(count)).reshape(-1, count)
        here = _probability(query, x, target)
        return there - (here[:, None] - there).abs()

    return score


def _count(x: Tensor) -> Tensor:
    return torch.arange(len(x), device=x.device)


def _probability(query: Query, x: Tensor, target: Tensor) -> Tensor:
    scores = query.model.scores(x)
    log: Tensor = scores.gather(1, target[:, None])[:, 0] - scores.logsumexp(1)
    return log.clamp(max=math.log(1.0)).exp()
