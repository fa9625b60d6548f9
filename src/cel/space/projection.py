"""The projection of many steps: a region read once, simplices without sorting."""

from __future__ import annotations

import torch
from torch import Tensor

from cel.space.region import Region

__all__ = ["Projection"]


class Projection:
    """Project rows onto the boxes and simplices of a region, as `Region.project` does.

    The shift of a simplex is the root of a decreasing, convex, piecewise linear function, which
    Newton's method finds in a few steps. Columns stay where they are, so that blocks of two
    categories do not pay for a block of forty. Values differ from `Region.project` by rounding.

    Args:
        region: of the rows that will be projected.

    >>> from cel.space import FeatureSpace
    >>> region = FeatureSpace.continuous(2).region(torch.tensor([[0.5, 0.5]]))
    >>> Projection(region)(torch.tensor([[2.0, 0.3]]))
    tensor([[1.0000, 0.3000]])
    """

    def __init__(self, region: Region) -> None:
        lay, still = region.layout, region.fixed
        self.lower = torch.where(still, region.origin, region.lower)
        self.upper = torch.where(still, region.origin, region.upper)
        soft = ~lay.numeric & ~still
        columns = soft.any(0).nonzero()[:, 0]  # of blocks that some row may change
        self.columns: Tensor | None = None
        if len(columns):
            self.columns, self.soft = columns, soft[:, columns]
            self.open = self.soft & region.reachable[:, columns]
            self.owner = torch.unique(lay.owner[columns], return_inverse=True)[1]
            blocks = torch.nn.functional.one_hot(self.owner)
            self.sums = blocks.to(region.origin)  # (columns, blocks)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the nearest points (n, d) of the rows' sets."""
        out = torch.clamp(x, self.lower, self.upper)
        if self.columns is None:
            return out
        blocks = x.index_select(1, self.columns)
        near = torch.where(self.soft, self._simplices(blocks), out.index_select(1, self.columns))
        return out.index_copy_(1, self.columns, near)

    def _simplices(self, v: Tensor) -> Tensor:
        """Return blocks (n, columns) with sum 1 and nothing negative; others mean nothing."""
        v = torch.where(self.open, v, torch.full_like(v, -1e30))
        inside = v > 0
        count = inside.to(v.dtype) @ self.sums
        if bool((count < 1).any()):  # nothing is above zero: begin with all that may be had
            inside = inside | (self.open & (count < 1).index_select(1, self.owner))
            count = inside.to(v.dtype) @ self.sums
        for _ in range(v.shape[1] + 2):  # more than there are sets to try
            total = torch.where(inside, v, torch.zeros_like(v)) @ self.sums
            shift = ((total - 1) / count.clamp(min=1)).index_select(1, self.owner)
            inside = v > shift
            now = inside.to(v.dtype) @ self.sums
            if torch.equal(now, count):  # sets of one block are nested: equal sizes, equal sets
                break
            count = now
        return (v - shift).clamp_(min=0)
