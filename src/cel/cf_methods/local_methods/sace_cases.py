"""A case base: training rows, how far apart they are, and which pairs make good examples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cel.search.streams import row_keys
from cel.space import FeatureSpace

__all__ = ["CaseBase", "GoodPairs", "find_pairs"]

_LABEL_GAP = 1e4  # codes of different labels are farther apart than any tolerance
_BLOCK = 256


@dataclass(frozen=True, kw_only=True, eq=False)
class CaseBase:
    """Distinct training rows in an order that does not depend on the order they came in.

    Attributes:
        x: (m, d) encoded rows.
        y: (m,) predicted classes.
        codes: (m, p) one number per feature: multiples of the standard deviation for numbers,
            widely spaced ranks for labels.
        numeric: (p,) bool.
        scale: (d,) standard deviations, 1 where a column is constant.
        space: the features.
    """

    x: Tensor
    y: Tensor
    codes: Tensor
    numeric: Tensor
    scale: Tensor
    space: FeatureSpace

    @classmethod
    def of(cls, x: Tensor, y: Tensor, space: FeatureSpace, *, limit: int, seed: int) -> CaseBase:
        """Build a case base of at most `limit` rows, drawn by a hash of their content."""
        rows, first = np.unique(x.cpu().numpy(), axis=0, return_index=True)
        keep = np.arange(len(rows))
        if len(rows) > limit:
            keep = np.sort(np.argsort(row_keys(rows, seed).numpy(), kind="stable")[:limit])
        spread = x.to(torch.float64).std(0, unbiased=False).to(x.dtype)
        scale = torch.where(spread > 1e-9, spread, torch.ones_like(spread))
        numeric = torch.tensor([not f.is_categorical for f in space], device=x.device)
        cases = torch.as_tensor(rows[keep]).to(x)
        codes = _codes(cases, scale, space)
        labels = y[torch.as_tensor(first[keep], device=y.device)]
        return cls(x=cases, y=labels, codes=codes, numeric=numeric, scale=scale, space=space)

    def encode(self, x: Tensor) -> Tensor:
        """Return the codes (n, p) of any rows (n, d)."""
        return _codes(x, self.scale, self.space)

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        """Return (n, m) distances between codes a (n, p) and b (m, p).

        The share of numeric features times their root mean squared difference, plus the share of
        labels times the rate of labels that differ.
        """
        share = self.numeric.to(a.dtype).mean()
        total = torch.zeros(len(a), len(b), dtype=a.dtype, device=a.device)
        if self.numeric.any():
            mode = "donot_use_mm_for_euclid_dist"
            gap = torch.cdist(a[:, self.numeric], b[:, self.numeric], compute_mode=mode)
            total += share * gap / float(self.numeric.sum()) ** 0.5
        if not self.numeric.all():
            labels = ~self.numeric
            unequal = torch.cdist(a[:, labels], b[:, labels], p=0)
            total += (1 - share) * unequal / float(labels.sum())
        return total


def _codes(x: Tensor, scale: Tensor, space: FeatureSpace) -> Tensor:
    out = torch.empty(len(x), len(space), dtype=x.dtype, device=x.device)
    numbers = [i for i, f in enumerate(space) if not f.is_categorical]
    columns = torch.as_tensor(space.numeric_columns, device=x.device)
    out[:, numbers] = (x / scale)[:, columns]
    for i, f in enumerate(space):
        if f.is_categorical:
            out[:, i] = x[:, list(f.columns)].argmax(1).to(x.dtype) * _LABEL_GAP
    return out


@dataclass(frozen=True, kw_only=True, eq=False)
class GoodPairs:
    """Native pairs of one class with another.

    Attributes:
        cases: (c,) positions of the rows that have partners.
        partners: (c, k) positions of their partners, nearest first, -1 for none.
    """

    cases: Tensor
    partners: Tensor


def find_pairs(
    base: CaseBase, own: int, other: int, *, differences: int, tolerance: float, partners: int
) -> GoodPairs:
    """Find rows of two classes that differ in few features, by exhaustive comparison.

    Pairs that differ in an immutable feature are left out: they show a change nobody can make.
    """
    ours = (base.y == own).nonzero()[:, 0]
    theirs = (base.y == other).nonzero()[:, 0]
    k = min(partners, len(theirs))
    mutable = torch.as_tensor(base.space.mutable_mask, device=base.x.device)
    found = [torch.full((0, k), -1, dtype=torch.long, device=base.x.device)]
    for block in torch.split(ours, _BLOCK) if k else ():
        a, b = base.codes[block], base.codes[theirs]
        count = torch.zeros(len(a), len(b), dtype=torch.int16, device=a.device)
        for j, movable in enumerate(mutable.tolist()):
            differs = (a[:, j, None] - b[None, :, j]).abs() > tolerance
            count += differs.to(torch.int16) * (1 if movable else differences + 1)
        good = (count > 0) & (count <= differences)
        distance = base.distance(a, b).masked_fill(~good, torch.inf)
        value, index = distance.topk(k, dim=1, largest=False, sorted=True)
        found.append(torch.where(value.isfinite(), theirs[index], torch.full_like(index, -1)))
    table = torch.cat(found)
    has = (table >= 0).any(1)
    return GoodPairs(cases=ours[has] if k else ours[:0], partners=table[has])
