"""Monotone rational-quadratic splines (Durkan et al., Neural Spline Flows, 2019)."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["Knots", "spline", "spline_inverse", "spline_knots"]

MIN_SIZE = 1e-3  # of the box, per bin
MIN_SLOPE = 1e-3
UNIT_SLOPE = math.log(math.expm1(1 - MIN_SLOPE))  # softplus of it, plus the floor, is one

Knots = tuple[Tensor, Tensor, Tensor]


def spline_knots(params: Tensor, bound: float) -> Knots:
    """Turn free numbers into knots of a monotone curve from (-b, -b) to (b, b).

    Args:
        params: (..., 3 k - 1, d) free numbers: k widths, k heights, k - 1 inner slopes. All zero
            gives the identity.
        bound: half the width b of the box.

    Returns:
        x-knots, y-knots and slopes, each (..., k + 1, d).
    """
    k = (params.shape[-2] + 1) // 3
    widths, heights, slopes = torch.split(params, [k, k, k - 1], -2)
    inner = MIN_SLOPE + functional.softplus(slopes + UNIT_SLOPE)
    return (
        _positions(widths, bound),
        _positions(heights, bound),
        functional.pad(inner, (0, 0, 1, 1), value=1.0),
    )


def spline(x: Tensor, knots: Knots, bound: float) -> tuple[Tensor, Tensor]:
    """Return the image of `x` (..., d) and log |dy/dx|; outside (-b, b) it is the identity."""
    inside = (x > -bound) & (x < bound)
    safe = x.clamp(-bound, bound)
    x0, w, y0, h, d0, d1 = _bin(safe, knots[0], knots)
    s = h / w
    r = ((safe - x0) / w).clamp(0, 1)
    mix = s + (d0 + d1 - 2 * s) * r * (1 - r)
    y = y0 + h * (s * r.square() + d0 * r * (1 - r)) / mix
    return torch.where(inside, y, x), torch.where(inside, _log_slope(r, s, d0, d1, mix), 0.0)


def spline_inverse(y: Tensor, knots: Knots, bound: float) -> Tensor:
    """Return the x whose image is `y` (..., d), by the quadratic formula."""
    inside = (y > -bound) & (y < bound)
    safe = y.clamp(-bound, bound)
    x0, w, y0, h, d0, d1 = _bin(safe, knots[1], knots)
    s, dy = h / w, safe - y0
    curve = d0 + d1 - 2 * s
    a = h * (s - d0) + dy * curve
    b = h * d0 - dy * curve
    c = -s * dy
    root = (b.square() - 4 * a * c).clamp(min=0).sqrt()
    return torch.where(inside, x0 + w * (2 * c / (-b - root)).clamp(0, 1), y)


def _positions(free: Tensor, bound: float) -> Tensor:
    size = MIN_SIZE + (1 - MIN_SIZE * free.shape[-2]) * free.softmax(-2)
    ends = functional.pad(size.cumsum(-2)[..., :-1, :], (0, 0, 1, 0))
    return functional.pad(2 * bound * ends - bound, (0, 0, 0, 1), value=bound)


def _bin(x: Tensor, edges: Tensor, knots: Knots) -> tuple[Tensor, ...]:
    """Return x0, width, y0, height and the slopes at both ends of the bin that holds `x`."""
    index = (x.unsqueeze(-2) >= edges[..., 1:-1, :]).sum(-2, keepdim=True)
    both = torch.cat((index, index + 1), -2)
    xs, ys, ds = (k.gather(-2, both) for k in knots)
    (x0, x1), (y0, y1), (d0, d1) = xs.unbind(-2), ys.unbind(-2), ds.unbind(-2)
    return x0, x1 - x0, y0, y1 - y0, d0, d1


def _log_slope(r: Tensor, s: Tensor, d0: Tensor, d1: Tensor, mix: Tensor) -> Tensor:
    top = d1 * r.square() + 2 * s * r * (1 - r) + d0 * (1 - r).square()
    return 2 * s.log() + top.log() - 2 * mix.log()
