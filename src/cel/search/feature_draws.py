"""Uniform draws of single features: what a row's region lets each of them become."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cel.search.streams import RowStreams
from cel.space.layout import by_feature
from cel.space.region import Region

__all__ = ["Sampler"]


@dataclass(frozen=True, eq=False)
class Sampler:
    """Uniform draws of single features inside each row's region."""

    region: Region
    order: Tensor  # (n, p) features, those that can move first
    count: Tensor  # (n,) how many can move
    table: Tensor  # (n, p, k) columns of a feature, reachable categories first
    choices: Tensor  # (n, p) reachable categories, or grid points, 0 for a continuous feature
    low: Tensor  # (n, p) first value of a number

    @classmethod
    def of(cls, region: Region) -> Sampler:
        """Prepare the draws for the rows of a region."""
        space, lay = region.space, region.layout
        n, p = len(region), len(space)
        width = max(len(f.columns) for f in space)
        columns = torch.tensor(
            [[*f.columns, *[f.columns[0]] * (width - len(f.columns))] for f in space],
            device=region.origin.device,
        )
        real = torch.tensor(
            [[k < len(f.columns) for k in range(width)] for f in space], device=columns.device
        )
        moves = by_feature(~region.fixed, lay.owner, p) > 0
        usable = region.reachable[:, columns] & real
        rank = (~usable).to(torch.int8).argsort(dim=-1, stable=True)
        table = columns.expand(n, p, width).gather(2, rank)
        first = columns[:, 0]
        low, points = _grid(region, first)
        categorical = ~lay.numeric[first]
        choices = torch.where(categorical, usable.sum(-1), points)
        order = (~moves).to(torch.int8).argsort(dim=1, stable=True)
        return cls(region, order, moves.sum(1), table, choices, low)

    def change_one(self, x: Tensor, rows: Tensor, stream: RowStreams) -> Tensor:
        """Redraw one random feature of each copy; `x` is (a, b, d), `rows` (a,)."""
        lay = self.region.layout
        shape = x.shape[:2]
        which, value = stream.uniform(shape[1]), stream.uniform(shape[1])
        place = (which * self.count[rows, None]).long().clamp(min=0)
        feature = self.order[rows].gather(1, place)  # (a, b)
        choices = self.choices[rows].gather(1, feature)
        rank = (value * choices).long().minimum((choices - 1).clamp(min=0))
        here = rows[:, None].expand(shape)
        numeric = lay.numeric[self.table[here, feature, 0]]
        column = self.table[here, feature, torch.where(numeric, torch.zeros_like(rank), rank)]
        low, high = self.low[here, feature], self.region.upper[here, column]
        number = torch.where(
            choices > 0, low + rank * lay.step[column], low + value * (high - low)
        )
        new = torch.where(numeric, number, torch.ones_like(number))
        touched = lay.owner == feature[..., None]
        return x.masked_fill(touched, 0).scatter(2, column[..., None], new[..., None])

    def everything(self, x: Tensor, rows: Tensor, stream: RowStreams) -> Tensor:
        """Draw all features that can move afresh; `x` is (a, b, d), `rows` (a,)."""
        return self.at(stream.uniform(x.shape[1], len(self.region.space)), rows)

    def at(self, value: Tensor, rows: Tensor) -> Tensor:
        """Return the points (a, b, d) at quantiles (a, b, p) of what each feature can reach."""
        lay, region = self.region.layout, self.region
        b = value.shape[1]
        choices = self.choices[rows][:, None, :]
        rank = (value * choices).long().minimum((choices - 1).clamp(min=0))
        first = self.table[rows][:, None, :, 0]
        high = region.upper[rows[:, None, None], first]
        low = self.low[rows][:, None, :]
        number = torch.where(choices > 0, low + rank * lay.step[first], low + value * (high - low))
        numeric = lay.numeric[first]
        place = torch.where(numeric, torch.zeros_like(rank), rank)
        column = (
            self.table[rows][:, None].expand(-1, b, -1, -1).gather(3, place[..., None])[..., 0]
        )
        new = torch.where(numeric, number, torch.ones_like(number))
        drawn = new.new_zeros(*value.shape[:2], region.space.width).scatter(2, column, new)
        return torch.where(region.fixed[rows][:, None, :], region.origin[rows][:, None, :], drawn)

    def other(self, x: Tensor, value: Tensor, rows: Tensor) -> Tensor:
        """Return points (a, b, d) like `x` with every category another one that is reachable.

        `value` (a, b, p) are quantiles of the other categories, numbers are left as they are, and
        so are categories that have no alternative.
        """
        lay, region = self.region.layout, self.region
        (a, b), width = x.shape[:2], self.table.shape[2]
        table = self.table[rows][:, None].expand(-1, b, -1, -1)  # (a, b, p, k)
        choices = self.choices[rows][:, None, :]
        present = x.gather(2, table.reshape(a, b, -1)).reshape(table.shape) > 0.5
        present &= torch.arange(width, device=x.device) < choices[..., None]
        rank = (value * (choices - 1)).long().minimum((choices - 2).clamp(min=0))
        own = present.to(torch.int8).argmax(-1)
        rank = rank + (present.any(-1) & (rank >= own)).long()
        column = table.gather(3, rank.clamp(max=width - 1)[..., None])[..., 0]
        new = torch.zeros_like(x).scatter(2, column, torch.ones_like(value))
        moves = ~lay.numeric & ~region.fixed[rows][:, None, :]
        return torch.where(moves, new, x)


def _grid(region: Region, first: Tensor) -> tuple[Tensor, Tensor]:
    """Return (first value (n, p), number of grid points (n, p), 0 for continuous features)."""
    lay = region.layout
    step, anchor = lay.step[first], lay.anchor[first]
    low, high = region.lower[:, first], region.upper[:, first]
    unit = torch.where(step > 0, step, torch.ones_like(step))
    start = ((low - anchor) / unit - 1e-4).ceil()
    stop = ((high - anchor) / unit + 1e-4).floor()
    on_grid = (step > 0) & (stop >= start)
    origin = torch.where(step > 0, region.origin[:, first], low)
    points = torch.where(on_grid, stop - start + 1, (step > 0).to(start.dtype))
    return torch.where(on_grid, anchor + unit * start, origin), points.long()
