"""Tests of robustness under every small change of the weights."""

from __future__ import annotations

import torch
from torch import Tensor

from cel.cf_methods.query import Query
from cel.cf_methods.tangent.margins import output_demands
from cel.models.relu_view import ReluView
from cel.search.gradient import RowFunction
from cel.search.relu_bounds import margin_floors

__all__ = ["certified_delta", "weight_margin"]

HALVINGS = 20
FEW = 8  # different changes of the weights that are tried one after the other


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
