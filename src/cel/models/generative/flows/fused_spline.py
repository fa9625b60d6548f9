"""Splines as one node of the graph, for training.

Values and gradients are those of `spline(x, spline_knots(params))`, to the byte on a CPU: the
terms of a gradient are added in the order in which the graph adds them, the latest use first.
What is saved is the graph, and work on knots that no row touches: of the edges of a curve only
the two around a number have a gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from cel.models.generative.flows.splines import MIN_SIZE, MIN_SLOPE, UNIT_SLOPE

__all__ = ["MOST_BINS", "Curve", "fused_spline"]

BOTH = 2  # widths and heights
MOST_BINS = 128  # bins are counted in bytes


def fused_spline(x: Tensor, params: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """Return the image of `x` (..., d) and log |dy/dx|, differentiable once.

    Args:
        x: (..., d) numbers.
        params: (..., 3 k - 1, d) free numbers, see `spline_knots`.
        bound: half the width of the box.
    """
    flat = params.reshape(-1, *params.shape[-2:])
    y, slope = _FusedSpline.apply(  # type: ignore[no-untyped-call]
        x.reshape(-1, x.shape[-1]), flat, bound
    )
    return y.view(x.shape), slope.view(x.shape)


class _FusedSpline(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, params: Tensor, bound: float) -> tuple[Tensor, Tensor]:
        ctx.curve = curve = Curve(x, params, bound)
        ctx.shape = params.shape
        return curve.y, curve.slope

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_y: Tensor, by_slope: Tensor) -> tuple[Tensor | None, Tensor, None]:
        by_params = by_y.new_empty(ctx.shape)
        by_x = ctx.curve.backward(by_y, by_slope, by_params, wanted=ctx.needs_input_grad[0])
        ctx.curve = None
        return by_x, by_params, None


class Curve:
    """The images `y` of numbers `x` (n, d), their log-slopes, and what gradients need of them.

    Args:
        x: (n, d) numbers.
        params: (n, 3 k - 1, d) free numbers.
        bound: half the width of the box.
    """

    def __init__(self, x: Tensor, params: Tensor, bound: float) -> None:
        n, d = x.shape
        k = (params.shape[1] + 1) // 3
        sizes = params[:, : BOTH * k].reshape(n, BOTH, k, d).softmax(-2)
        sizes = sizes.permute(1, 2, 0, 3).contiguous()  # bins first: what follows is in one piece
        free = params[:, BOTH * k :] + UNIT_SLOPE
        edges = (sizes * (1 - MIN_SIZE * k)).add_(MIN_SIZE).cumsum(1)
        knots = edges.new_empty(BOTH + 1, k + 1, n, d)
        knots[:BOTH, 0], knots[:BOTH, k], knots[BOTH, ::k] = -bound, bound, 1.0
        torch.mul(edges[:, :-1], 2 * bound, out=knots[:BOTH, 1:k]).sub_(bound)
        knots[BOTH, 1:k] = functional.softplus(free).add_(MIN_SLOPE).transpose(0, 1)
        inside = (x > -bound) & (x < bound)
        safe = x.clamp(-bound, bound)
        index = _bins(safe, knots[0])
        x0, x1, y0, y1, d0, d1 = _around(index, knots)
        w, h = x1 - x0, y1 - y0
        s = h / w
        q = (safe - x0).div_(w)
        r = q.clamp(0, 1)
        u = 1 - r
        rr = r.square()
        curve = (d0 + d1).sub_(2 * s)
        bent = curve * r
        mix = (bent * u).add_(s)
        rise = d0 * r
        number = (s * rr).add_(rise * u)
        share = (h * number).div_(mix)
        twice = 2 * s
        top = (d1 * rr).add_((twice * r).mul_(u)).add_(d0 * u.square())
        slope = (2 * s.log()).add_(top.log()).sub_(2 * mix.log())
        self.x, self.bound, self.sizes, self.free = x, bound, sizes, free
        self.inside, self.index = inside, index
        self.parts = d0, d1, w, h, s, q, r, curve, mix, number, share, top
        self.y, self.slope = torch.where(inside, y0 + share, x), slope.mul_(inside)

    def backward(
        self, by_y: Tensor, by_slope: Tensor, by_params: Tensor, *, wanted: bool
    ) -> Tensor | None:
        """Fill the gradient of the parameters; return that of the numbers, if it is wanted."""
        inside, x, bound = self.inside, self.x, self.bound
        within = torch.where(inside, by_y, 0.0)
        by_t, ends = _by_ends(within, torch.where(inside, by_slope, 0.0), *self.parts)
        by_x = None
        if wanted:
            by_x = torch.where(inside, 0.0, by_y)
            by_x += torch.where((x >= -bound) & (x <= bound), by_t, 0.0)
        _by_params(ends, self.index, self.sizes, self.free, bound, by_params)
        return by_x


def _bins(x: Tensor, edges: Tensor) -> Tensor:
    """Return how many inner edges (k + 1, n, d) lie at or below `x` (n, d)."""
    count = torch.zeros_like(x, dtype=torch.int8)
    for edge in edges[1:-1]:
        count += (x >= edge).view(torch.int8)
    return count.long()


def _around(index: Tensor, knots: Tensor) -> tuple[Tensor, ...]:
    """Return of each kind of knots (3, k + 1, n, d) both ends of the bins (n, d), six in all."""
    size = index.numel()
    place = torch.arange(size).add_(index.view(-1), alpha=size)
    kinds = torch.arange(len(knots))[:, None, None] * (knots.shape[1] * size)
    both = kinds + torch.stack((place, place + size))
    ends = knots.view(-1).index_select(0, both.view(-1))
    return ends.view(-1, *index.shape).unbind(0)


def _by_ends(
    by_y: Tensor,
    by_log: Tensor,
    d0: Tensor,
    d1: Tensor,
    w: Tensor,
    h: Tensor,
    s: Tensor,
    q: Tensor,
    r: Tensor,
    curve: Tensor,
    mix: Tensor,
    number: Tensor,
    share: Tensor,
    top: Tensor,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the gradients of the number and of x0, x1, y0, y1, d0, d1, each (n, d)."""
    u, twice, double = 1 - r, 2 * s, 2 * r
    rise, rr = d0 * r, r.square()
    # log |dy/dx|, from its end to its beginning
    by_mix = (by_log.neg() * 2).div_(mix)
    by_top = by_log / top
    by_s = (by_log * 2).div_(s)
    by_d0 = by_top * u.square()
    by_r = (by_top * d0).mul_(2 * u).neg_()
    by_r -= by_top * (twice * r)
    bent = by_top * u
    by_r += bent * twice
    by_s += bent.mul_(r).mul_(2)
    by_d1 = by_top * rr
    by_r += (by_top * d1).mul_(double)
    # the image
    by_product = by_y / mix
    by_mix += by_y.neg() * (share / mix)
    by_h = by_product * number
    by_number = by_product.mul_(h)
    by_r -= by_number * rise
    by_rise = by_number * u
    by_d0 += by_rise * r
    by_r += by_rise.mul_(d0)
    by_s += by_number * rr
    by_r += by_number.mul_(s).mul_(double)
    # the denominator of both
    by_s += by_mix
    by_r -= by_mix * (curve * r)
    by_bent = by_mix * u
    by_r += by_bent * curve
    by_curve = by_bent.mul_(r)
    by_s += by_curve.neg() * 2
    by_d0 += by_curve
    by_d1 += by_curve
    # the place in the bin
    by_q = torch.where((q >= 0) & (q <= 1), by_r, 0.0)
    by_t = by_q / w
    by_w = by_q.neg_().mul_(q / w)
    by_h += by_s / w
    by_w += by_s.neg_().mul_(s / w)
    return by_t, (by_t.neg().sub_(by_w), by_w, by_y - by_h, by_h, by_d0, by_d1)


def _by_params(
    ends: tuple[Tensor, ...],
    index: Tensor,
    sizes: Tensor,
    free: Tensor,
    bound: float,
    out: Tensor,
) -> None:
    """Write the gradient (n, 3 k - 1, d) of the free numbers from those at the ends of bins.

    Sizes are (2, k, n, d): of both kinds, bins first.
    """
    _, k, n, d = sizes.shape
    x0, x1, y0, y1, d0, d1 = ends
    # An edge moves with all sizes before it; the first and the last edge are fixed.
    place = index.view(-1)
    lower = torch.stack((x0, y0)).mul_(2 * bound).view(BOTH, 1, -1)
    upper = torch.stack((x1, y1)).mul_(2 * bound).view(BOTH, 1, -1).mul_(place < k - 1)
    before = place.to(x0.dtype).add(1) - torch.arange(k + 1, dtype=x0.dtype)[:, None]
    before.clamp_(0, 1)  # (k + 1, n d): ones for the sizes up to the bin, then zeros
    moved = (upper * before[:-1]).add_(lower * before[1:])
    moved = moved.view(sizes.shape).mul_(1 - MIN_SIZE * k)
    turned = torch._softmax_backward_data(moved, sizes, 1, sizes.dtype)
    out[:, : BOTH * k].view(n, BOTH, k, d).copy_(turned.permute(2, 0, 1, 3))
    bent = x0.new_zeros(n, k + 1, d)
    both = torch.stack((index, index + 1), -2)
    bent.scatter_(-2, both, torch.stack((d0, d1), -2))
    out[:, BOTH * k :] = torch.ops.aten.softplus_backward(bent[:, 1:k].contiguous(), free, 1, 20)
