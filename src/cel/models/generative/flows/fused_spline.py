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

__all__ = ["MOST_BINS", "fused_spline"]

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
        n, d = x.shape
        k = (params.shape[1] + 1) // 3
        sizes = params[:, : BOTH * k].reshape(n, BOTH, k, d).softmax(-2)
        free = params[:, BOTH * k :] + UNIT_SLOPE
        edges = (sizes * (1 - MIN_SIZE * k)).add_(MIN_SIZE).cumsum(-2)
        knots = edges.new_empty(n, BOTH, k + 1, d)
        knots[:, :, 0], knots[:, :, k] = -bound, bound
        torch.mul(edges[:, :, :-1], 2 * bound, out=knots[:, :, 1:k]).sub_(bound)
        slopes = functional.pad(functional.softplus(free).add_(MIN_SLOPE), (0, 0, 1, 1), value=1.0)
        inside = (x > -bound) & (x < bound)
        safe = x.clamp(-bound, bound)
        index = _bins(safe, knots[:, 0])
        both = torch.stack((index, index + 1), -2)
        (x0, x1), (y0, y1), (d0, d1) = (
            t.gather(-2, both).unbind(-2) for t in (knots[:, 0], knots[:, 1], slopes)
        )
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
        ctx.save_for_backward(
            x, sizes, free, inside, index, d0, d1, w, h, s, q, r, curve, mix, number, share, top
        )
        ctx.bound = bound
        return torch.where(inside, y0 + share, x), slope.mul_(inside)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_y: Tensor, by_slope: Tensor) -> tuple[Tensor | None, Tensor, None]:
        x, sizes, free, inside, index, *parts = ctx.saved_tensors
        within = torch.where(inside, by_y, 0.0)
        by_t, ends = _by_ends(within, torch.where(inside, by_slope, 0.0), *parts)
        by_x = None
        if ctx.needs_input_grad[0]:
            by_x = torch.where(inside, 0.0, by_y)
            by_x += torch.where((x >= -ctx.bound) & (x <= ctx.bound), by_t, 0.0)
        return by_x, _by_params(ends, index, sizes, free, ctx.bound), None


def _bins(x: Tensor, edges: Tensor) -> Tensor:
    """Return how many inner edges (n, k + 1, d) lie at or below `x` (n, d)."""
    count = torch.zeros_like(x, dtype=torch.int8)
    for j in range(1, edges.shape[1] - 1):
        count += (x >= edges[:, j]).view(torch.int8)
    return count.long()


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
    ends: tuple[Tensor, ...], index: Tensor, sizes: Tensor, free: Tensor, bound: float
) -> Tensor:
    """Return the gradient (n, 3 k - 1, d) of the free numbers from those at the ends of bins."""
    n, _, k, d = sizes.shape
    x0, x1, y0, y1, d0, d1 = ends
    out = x0.new_empty(n, 3 * k - 1, d)
    # An edge moves with all sizes before it; the first and the last edge are fixed.
    place = index.view(-1)
    lower = torch.stack((x0, y0)).mul_(2 * bound).view(BOTH, 1, -1)
    upper = torch.stack((x1, y1)).mul_(2 * bound).view(BOTH, 1, -1).mul_(place < k - 1)
    before = place.to(x0.dtype).add(1) - torch.arange(k + 1, dtype=x0.dtype)[:, None]
    before.clamp_(0, 1)  # (k + 1, n d): ones for the sizes up to the bin, then zeros
    moved = (upper * before[:-1]).add_(lower * before[1:])
    moved = moved.view(BOTH, k, n, d).permute(2, 0, 1, 3).contiguous().mul_(1 - MIN_SIZE * k)
    shape = (n, BOTH * k, d)
    out[:, : BOTH * k] = torch._softmax_backward_data(moved, sizes, -2, sizes.dtype).view(shape)
    bent = x0.new_zeros(n, k + 1, d)
    both = torch.stack((index, index + 1), -2)
    bent.scatter_(-2, both, torch.stack((d0, d1), -2))
    out[:, BOTH * k :] = torch.ops.aten.softplus_backward(bent[:, 1:k].contiguous(), free, 1, 20)
    return out
