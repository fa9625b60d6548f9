"""What groups of features may become: values of known rows that the region of a row allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cel.errors import ConfigError
from cel.space import Feature, FeatureSpace
from cel.space.region import Region

__all__ = ["GroupValues", "columns_of", "feature_gaps", "groups_of"]


def groups_of(space: FeatureSpace, groups: Sequence[Sequence[str]] | None) -> Tensor:
    """Return (g, p) bool: the features of each group; those of none are groups of their own."""
    taken: dict[str, int] = {}
    lists = [list(group) for group in groups or ()]
    for number, group in enumerate(lists):
        for name in group:
            _ = space[name]
            if name in taken:
                raise ConfigError(f"feature {name!r} is in two groups; name it once")
            taken[name] = number
    lists += [[name] for name in space.names if name not in taken]
    return torch.tensor([[n in group for n in space.names] for group in lists])


def columns_of(groups: Tensor, owner: Tensor) -> Tensor:
    """Return (g, d) bool: the columns of groups (g, p)."""
    return groups.to(owner.device)[:, owner]


def feature_gaps(x: Tensor, origin: Tensor, space: FeatureSpace) -> Tensor:
    """Return (..., p): |difference| / range of each feature, 1 for another category."""
    numbers = [i for i, f in enumerate(space) if not f.one_hot]
    columns = [space[space.names[i]].columns[0] for i in numbers]
    width = [f.upper - f.lower for f in space if not f.one_hot]
    unit = torch.tensor([w if 0 < w < float("inf") else 1.0 for w in width]).to(x)
    away = (x - origin).abs_()
    if len(numbers) == x.shape[-1]:  # one column each: no copies of single columns
        return away.div_(unit) if columns == numbers else away[..., columns] / unit
    out = x.new_empty(*away.shape[:-1], len(space))
    out[..., numbers] = away[..., columns] / unit
    for i, f in enumerate(space):
        if f.one_hot:
            out[..., i] = (away[..., list(f.columns)] > 0.5).any(-1).to(x.dtype)
    return out


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupValues:
    """Known rows whose values each group of each row may take over, nearest first.

    A value counts as often as it occurs among the known rows, so that a uniform draw of a place
    draws values with the frequencies of the data; the values of a group are drawn together.

    Attributes:
        x: (m, d) known rows.
        columns: (g, d) bool, columns of each group.
        place: (n, g, m) positions of known rows, nearest to the row in that group first.
        gap: (n, g, m) how far they are, infinite for those that the row may not take.
        count: (n, g) how many it may take.
    """

    x: Tensor
    columns: Tensor
    place: Tensor
    gap: Tensor
    count: Tensor

    @classmethod
    def of(cls, x: Tensor, groups: Tensor, region: Region) -> GroupValues:
        """Look up what the rows of a region may take from known rows (m, d)."""
        space = region.space
        may = torch.stack([_may(x, f, region) for f in space], 1)  # (n, p, m)
        apart = feature_gaps(x[None], region.origin[:, None], space).movedim(2, 1)
        gaps = []
        for group in groups:
            far = apart[:, group].sum(1)
            gaps.append(far.masked_fill(~may[:, group].all(1) | (far <= 1e-6), torch.inf))
        gap, place = torch.stack(gaps, 1).sort(dim=2, stable=True)
        columns = columns_of(groups, region.layout.owner)
        return cls(x=x, columns=columns, place=place, gap=gap, count=gap.isfinite().sum(2))

    def put(self, people: Tensor, rows: Tensor, group: Tensor, rank: Tensor) -> Tensor:
        """Return people (..., d) with a group set to the value of a rank; all (...)."""
        donor = self.x[self._at(self.place, rows, group, rank)]
        return torch.where(self.columns[group], donor, people)

    def far(self, rows: Tensor, group: Tensor, rank: Tensor) -> Tensor:
        """Return how far the values of a rank are from rows, summed over the group; all (...)."""
        return self._at(self.gap, rows, group, rank)

    def nearer(self, rows: Tensor, than: Tensor) -> Tensor:
        """Return how many values (a, r, g) of each group are nearer to rows (a,) than `than`."""
        limits = than.movedim(2, 1).contiguous()
        return torch.searchsorted(self.gap[rows], limits).movedim(1, 2)

    def _at(self, table: Tensor, rows: Tensor, group: Tensor, rank: Tensor) -> Tensor:
        _, g, m = table.shape
        return table.reshape(-1)[(rows * g + group) * m + rank]


def _may(x: Tensor, f: Feature, region: Region) -> Tensor:
    """Tell (n, m) whether rows may take the value of a feature from known rows (m, d)."""
    columns = list(f.columns)
    if f.one_hot:
        value = x[:, columns]
        code = value.argmax(1)
        known = value.gather(1, code[:, None])[:, 0] > 0.5
        return region.reachable[:, columns][:, code] & known
    column, slack = columns[0], region.layout.tolerance[columns[0]]
    value = x[:, column]
    may = (value >= region.lower[:, column, None]) & (value <= region.upper[:, column, None])
    for ranked, values in region.layout.ranks:
        if ranked == column:
            may &= ((value[:, None] - values).abs() <= slack).any(1)
    return may | (value == region.origin[:, column, None])
