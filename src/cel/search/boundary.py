"""Searches along segments and shells that need only a yes or no."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["bisect_to_boundary"]

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
