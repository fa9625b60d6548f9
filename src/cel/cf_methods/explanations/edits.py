"""Edits that many rows share: their cost, where they lead, what the model says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.query import MARGIN, Query
from cel.space import FeatureSpace
from cel.space.region import Region
from cel.space.rules import Rules

__all__ = ["BINS", "BinCost", "Edits", "Price", "Tried", "edit_margins", "predict_edits", "settle"]

BINS = 10  # a numeric feature's training range is this many units of cost
CHUNK_ROWS = 200_000
CHUNK_VALUES = 2**23


@dataclass(frozen=True, kw_only=True, eq=False)
class BinCost:
    """Cost in bins: sum |x' - x| / (range / 10) over numbers, plus 1 per changed category.

    The range is that of the training rows. Features that are constant there cost as if their range
    were 1 and are not `movable`.

    Attributes:
        scale: (d,) cost of one unit of each column; 0.5 for one-hot columns, since two change.
        movable: (p,) bool, features that may change and do vary.
        low: (d,) smallest training value of each column.
        high: (d,) largest training value.
    """

    scale: Tensor
    movable: np.ndarray
    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, space: FeatureSpace, x: Tensor) -> BinCost:
        """Learn the ranges from training rows (m, d)."""
        low, high = x.amin(0), x.amax(0)
        width = (high - low).cpu().numpy().astype(np.float64)
        numeric = np.zeros(space.width, dtype=bool)
        numeric[space.numeric_columns] = True
        scale = np.where(numeric, BINS / np.where(width > 0, width, 1.0), 0.5)
        varies = np.zeros(len(space), dtype=bool)
        np.logical_or.at(varies, space.owner, width > 0)
        return cls(
            scale=torch.as_tensor(scale * space.vector("weight")).to(x),
            movable=space.mutable_mask & varies,
            low=low,
            high=high,
        )

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the cost between points, over the last axis."""
        return (b - a).abs() @ self.scale

    @property
    def largest(self) -> float:
        """Cost of moving every movable feature from end to end."""
        return float(BINS * max(int(self.movable.sum()), 1))


Price = BinCost  # its earlier name


@dataclass(frozen=True, kw_only=True, eq=False)
class Edits:
    """E edits of a row of d columns: `x' = where(fixed, value, x + shift)`.

    Attributes:
        shift: (E, d) what is added.
        fixed: (E, d) bool, columns that get a value.
        value: (E, d) that value.
    """

    shift: Tensor
    fixed: Tensor
    value: Tensor

    @classmethod
    def nothing(cls, count: int, like: Tensor) -> Edits:
        """Return edits that change nothing, in the dtype and on the device of `like` (n, d)."""
        zeros = torch.zeros(count, like.shape[1], dtype=like.dtype, device=like.device)
        return cls(shift=zeros, fixed=zeros > 0, value=zeros.clone())

    def __len__(self) -> int:
        return len(self.shift)

    def select(self, which: Any) -> Edits:
        """Return some edits, by slice, mask or positions."""
        return Edits(shift=self.shift[which], fixed=self.fixed[which], value=self.value[which])

    def all_pairs(self, x: Tensor) -> Tensor:
        """Apply every edit to every row of `x` (n, d), shape (E, n, d)."""
        moved = x[None] + self.shift[:, None]
        return torch.where(self.fixed[:, None], self.value[:, None], moved)

    def one_each(self, x: Tensor) -> Tensor:
        """Apply edit i to row i; `x` has as many rows as there are edits."""
        return torch.where(self.fixed, self.value, x + self.shift)


def settle(
    x: Tensor, region: Region, bin_cost: BinCost | None = None, *, outward: bool = True
) -> Tensor:
    """Bring points (..., n, d) with hard categories into the region of their rows.

    Numbers are clipped to the row's bounds and, if a cost is given, to the training range. Grid
    values are rounded away from the row, so that an edit does at least what it says; or to the
    nearest one, for searches that see the rounded points.
    """
    low, high = region.lower, region.upper
    if bin_cost is not None:
        low = torch.maximum(low, torch.minimum(bin_cost.low, region.origin))
        high = torch.minimum(high, torch.maximum(bin_cost.high, region.origin))
    out = torch.minimum(torch.maximum(x, low), high)
    grid = (region.layout.step > 0).nonzero()[:, 0]
    if len(grid):
        out[..., grid] = _rounded(out[..., grid], region, (low, high), grid, outward)
    return _repaired(out, region) if region.space.constraints else out


def _repaired(x: Tensor, region: Region) -> Tensor:
    """Snap the points that break a relation or an implication; most do not."""
    flat = x.reshape(-1, x.shape[-1])
    row = torch.arange(len(region), device=x.device).repeat(len(flat) // len(region))
    origin = region.origin.expand(x.shape).reshape(flat.shape)
    broken = Rules(region.space, region.layout, origin).broken(flat).any(1)
    at = broken.nonzero()[:, 0]
    if not len(at):
        return x
    out = flat.clone()
    out[at] = region.select(row[at]).snap(flat[at])
    return out.reshape(x.shape)


def _rounded(
    x: Tensor, region: Region, bounds: tuple[Tensor, Tensor], columns: Tensor, outward: bool
) -> Tensor:
    """Put grid columns on their grid: away from their rows if there is room, or to the nearest."""
    step, anchor = region.layout.step[columns], region.layout.anchor[columns]
    origin, (low, high) = region.origin[:, columns], (b[:, columns] for b in bounds)
    place, slack = (x - anchor) / step, 1e-4
    up, down, rises = (place - slack).ceil(), (place + slack).floor(), x > origin
    away = torch.where(rises, up, down) if outward else place.round()
    grid = anchor + step * away
    inner = anchor + step * torch.where(rises, down, up)
    fits = (grid <= high + slack * step) & (grid >= low - slack * step)
    home = (x - origin).abs() <= (1e-6 if outward else step / 2)
    return torch.where(home, origin, torch.where(fits, grid, inner))


@dataclass(frozen=True, kw_only=True, eq=False)
class Tried:
    """What E edits do to n rows.

    Attributes:
        margin: (E, n) how far inside (+) or outside (-) the target.
        cost: (E, n) cost in bins.
    """

    margin: Tensor
    cost: Tensor

    @property
    def flips(self) -> Tensor:
        """(E, n) bool, whether the target is reached."""
        return self.margin >= MARGIN


def edit_margins(points: Tensor, query: Query) -> Tensor:
    """Return the margins (e, n) of points (e, n, d), row by row towards the row's target."""
    e, n, d = points.shape
    target = query.target.expand(e, *query.target.shape).reshape(e * n, *query.target.shape[1:])
    return query.model.margin(points.reshape(e * n, d), target).reshape(e, n)


def predict_edits(
    query: Query,
    edits: Edits,
    bin_cost: BinCost,
    *,
    clip: bool = True,
    chunk_rows: int = CHUNK_ROWS,
) -> Tried:
    """Apply every edit to every row of the query and ask the model, in chunks.

    At most `chunk_rows` edited rows exist at a time. When the budget of the query ends, the rest
    counts as not reaching the target.
    """
    n, d = query.x.shape
    margin = torch.full((len(edits), n), -torch.inf, dtype=query.x.dtype, device=query.x.device)
    cost = torch.full_like(margin, torch.inf)
    rows = min(chunk_rows, max(1, CHUNK_VALUES // d))
    for first in range(0, n, rows):
        part = slice(first, first + rows)
        piece = query if rows >= n else query.select(query.rows()[part])
        size = max(1, rows // max(len(piece), 1))
        for start in range(0, len(edits), size):
            if query.budget.expired:
                return Tried(margin=margin, cost=cost)
            some = slice(start, start + size)
            points = settle(
                edits.select(some).all_pairs(piece.x), piece.region, bin_cost if clip else None
            )
            margin[some, part] = edit_margins(points, piece)
            cost[some, part] = bin_cost(piece.x, points)
    return Tried(margin=margin, cost=cost)
