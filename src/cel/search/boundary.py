"""Searches along segments and shells that need only a yes or no."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["bisect_to_boundary", "narrow_to_boundary"]

Test = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(points (a, d), row numbers (a,)) -> (points as they will be seen, accepted)."""


def bisect_to_boundary(
    origin: Tensor,
    x: Tensor,
    ok: Tensor,
    accept: Test,
    *,
    slide: Tensor | None = None,
    steps: int = 20,
) -> Tensor:
    """Move accepted rows towards their origin as far as they stay accepted.

    Args:
        origin: (n, d) where the rows come from.
        x: (n, d) accepted points.
        ok: (n,) rows to move; the others are returned as they are.
        accept: acceptance test.
        slide: (d,) bool columns that move; None for all. Categories are held at `x`.
        steps: halvings of the segment.

    Returns:
        (n, d) accepted points, never farther from the origin than `x` along the segment.
    """
    rows = ok.nonzero()[:, 0]
    if not len(rows):
        return x
    start = origin[rows] if slide is None else torch.where(slide, origin[rows], x[rows])
    best, low = x[rows].clone(), torch.zeros_like(x[rows, :1])
    high = torch.ones_like(low)
    for _ in range(steps):
        middle = (low + high) / 2
        seen, good = accept(start + middle * (x[rows] - start), rows)
        best = torch.where(good[:, None], seen, best)
        high = torch.where(good[:, None], middle, high)
        low = torch.where(good[:, None], low, middle)
    out = x.clone()
    out[rows] = best
    return out


def narrow_to_boundary(
    origin: Tensor,
    x: Tensor,
    accept: Test,
    *,
    slide: Tensor,
    parts: int = 8,
    rounds: int = 3,
) -> Tensor:
    """Move accepted points towards their origin, with few questions about many points each.

    Each round cuts the segment that is left into parts and goes on with the one that ends at the
    first accepted cut: 1 / 512 of the way is left after three calls, where halving needs nine.

    Args:
        origin: (n, d) where the points come from.
        x: (n, d) accepted points.
        accept: acceptance test.
        slide: (d,) bool columns that move; the others are held at `x`.
        parts: pieces of a segment in each round.
        rounds: how often it is cut.

    Returns:
        (n, d) accepted points, never farther from the origin than `x` along the segment.
    """
    n, d = x.shape
    start, best = torch.where(slide, origin, x), x.clone()
    low, width = torch.zeros_like(x[:, :1]), 1.0
    cuts = torch.arange(1, parts, device=x.device).to(x) / parts
    rows = torch.arange(n, device=x.device).repeat_interleave(parts - 1)
    for _ in range(rounds):
        share = low + width * cuts  # (n, parts - 1)
        points = start[:, None] + share[..., None] * (x - start)[:, None]
        seen, good = accept(points.reshape(-1, d), rows)
        seen, good = seen.reshape(points.shape), good.reshape(share.shape)
        some = good.any(1)
        first = torch.where(some, good.to(torch.uint8).argmax(1), parts - 1)
        best[some] = seen[some, first[some]]
        width /= parts
        low = low + width * first[:, None]
    return best
