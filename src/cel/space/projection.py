"""The projection of many steps: a region read once, simplices without sorting."""

from __future__ import annotations

import torch
from torch import Tensor

from cel.space.region import Region

__all__ = ["Projection"]

ROUNDING = 6e-8  # shifts that are nothing but rounding of a sum
CLOSED = -1e30  # added to categories that may not be had


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
        if not len(columns):
            return
        self.columns = columns
        soft = soft[:, columns]
        self.soft = None if bool(soft.all()) else soft
        self.shut = (soft & ~region.reachable[:, columns]).T.to(region.origin)  # (columns, n)
        self.any_shut = bool(self.shut.any())
        self.owner = torch.unique(lay.owner[columns], return_inverse=True)[1]
        blocks = torch.nn.functional.one_hot(self.owner)
        self.sums = blocks.T.to(region.origin).contiguous()  # (blocks, columns)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the nearest points (n, d) of the rows' sets."""
        out = torch.clamp(x, self.lower, self.upper)
        if self.columns is None:
            return out
        near = self._simplices(x.index_select(1, self.columns).T.contiguous()).T
        if self.soft is not None:
            near = torch.where(self.soft, near, out.index_select(1, self.columns))
        return out.index_copy_(1, self.columns, near)

    def _simplices(self, v: Tensor) -> Tensor:
        """Return blocks (columns, n), each with sum 1 and nothing negative.

        Comparing and choosing cost several times as much as arithmetic here, so that what lies
        above the shift is counted by its sign.
        """
        if self.any_shut:
            v = torch.add(v, self.shut, alpha=CLOSED)
        above = torch.relu(v)
        count = self.sums @ above.sign()
        if float(count.min()) < 1:
            v = v - self._below(v, count < 1).index_select(0, self.owner)
            above = torch.relu(v)
            count = self.sums @ above.sign()
        for turn in range(len(v)):  # at most so many sets
            shift = torch.hardshrink(((self.sums @ above) - 1) / count, ROUNDING)
            if turn:  # from the second on shifts only rise
                shift = torch.relu(shift)
            v = v - shift.index_select(0, self.owner)
            above = torch.relu(v)
            before, count = count, self.sums @ above.sign()
            if torch.equal(before, count):  # sets of one block are nested: same size, same set
                break
        return above

    def _below(self, v: Tensor, blocks: Tensor) -> Tensor:
        """Return shifts (blocks, n) of some blocks that leave something above zero."""
        may = 1 - self.shut
        return torch.where(blocks, (self.sums @ (v * may) - 1) / (self.sums @ may), 0.0)
