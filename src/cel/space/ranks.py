"""Ordinal features of which only some ranks may be reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from cel.space.layout import Layout
    from cel.space.region import Region

__all__ = ["forbidden_ranks", "snap_ranks"]


def snap_ranks(region: Region, x: Tensor, out: Tensor) -> Tensor:
    """Write the nearest rank that may be reached, or the origin, into `out` (n, d)."""
    for column, values in region.layout.ranks:
        home, tolerance = region.origin[:, column, None], region.layout.tolerance[column]
        choices = torch.cat([home, values.expand(len(x), -1)], 1)
        below = choices < region.lower[:, column, None] - tolerance
        above = choices > region.upper[:, column, None] + tolerance
        distance = (x[:, column, None] - choices).abs().masked_fill(below | above, torch.inf)
        out[:, column] = choices.gather(1, distance.argmin(1, keepdim=True))[:, 0]
    return out


def forbidden_ranks(layout: Layout, grid: Tensor) -> Tensor:
    """(n, d) bool: which columns of grid values are ranks that may not be reached."""
    out = torch.zeros_like(grid, dtype=torch.bool)
    for column, values in layout.ranks:
        away = (grid[:, column, None] - values).abs() > layout.tolerance[column]
        out[:, column] = away.all(-1)
    return out
