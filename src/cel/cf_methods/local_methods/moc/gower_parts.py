"""Gower distances of many people to known rows and among each other, without what cannot move."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from cel.space.region import Region

__all__ = ["GowerParts", "Reference"]

_PAIRS = 2**18  # distances to known rows that exist at a time: they stay in the cache of a core


@dataclass(frozen=True, kw_only=True, eq=False)
class Reference:
    """Known rows, scaled so that the L1 distance of two rows is their Gower distance.

    Attributes:
        x: (m, d) rows.
        y: their outcomes.
        unit: (d,) what a difference of each column counts, the same for all one-hot columns.
        sd: (d,) standard deviation of each column.
    """

    x: Tensor
    y: Tensor
    unit: Tensor
    sd: Tensor


@dataclass(frozen=True, eq=False)
class GowerParts:
    """Distances between people of some rows, and to known rows.

    Columns that nobody can move are compared once per row. Of the others, numbers are subtracted
    and labels counted: the product of two one-hot rows is the number of equal labels, exactly.

    Attributes:
        known: the known rows.
        region: of the rows whose people are compared.
    """

    known: Reference
    region: Region

    @cached_property
    def _numbers(self) -> Tensor:
        lay = self.region.layout
        return (lay.mutable & lay.numeric).nonzero()[:, 0]

    @cached_property
    def _labels(self) -> Tensor:
        return self.region.layout.switches.columns.nonzero()[:, 0]

    @cached_property
    def _still(self) -> Tensor:
        """(n, m) distances of rows to known rows over the columns that nobody can move."""
        still = torch.ones_like(self.region.layout.numeric)
        still[self._numbers] = False
        still[self._labels] = False
        unit = self.known.unit[still]
        return torch.cdist(self.region.origin[:, still] * unit, self.known.x[:, still] * unit, p=1)

    @cached_property
    def _there(self) -> tuple[Tensor, Tensor]:
        return self._split(self.known.x)

    def moved(self, a: Tensor, b: Tensor) -> Tensor:
        """Return distances (..., i, j) of people (..., i, d) and (..., j, d) that can move."""
        return self._apart(self._split(a), self._split(b))

    def near(self, points: Tensor, rows: Tensor, k: int) -> Tensor:
        """Return the mean distance (a,) of people (a, d) of rows (a,) to their k nearest rows."""
        count, size = min(k, len(self.known.x)), max(1, _PAIRS // len(self.known.x))
        there, here = self._there, self._split(points)
        out = []
        for numbers, labels, at in zip(
            *(torch.split(v, size) for v in (*here, rows)), strict=True
        ):
            apart = self._apart((numbers, labels), there).add_(self._still[at])
            best = apart.amin(1) if count == 1 else apart.topk(count, largest=False).values.mean(1)
            out.append(best)
        return torch.cat(out) if out else points[:, 0]

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return numbers in units of the distance, and labels."""
        numbers = x.index_select(-1, self._numbers) * self.known.unit[self._numbers]
        return numbers, x.index_select(-1, self._labels)

    def _apart(self, a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> Tensor:
        far = torch.cdist(a[0], b[0], p=1)
        if not len(self._labels):
            return far
        equal = a[1] @ b[1].mT
        differ = a[1].sum(-1, keepdim=True) + b[1].sum(-1).unsqueeze(-2) - 2 * equal
        return far.add_(differ, alpha=float(self.known.unit[self._labels[0]]))
