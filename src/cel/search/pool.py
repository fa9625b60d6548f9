"""Known rows as answers: the nearest ones of a class, where the region of a row allows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from cel.errors import ConfigError
from cel.search.boundary import Test
from cel.search.budget import Budget
from cel.search.pool_floor import Gauge, PoolPart
from cel.search.streams import row_keys
from cel.space import FeatureSpace
from cel.space.distances import mad_scale
from cel.space.region import Region

__all__ = ["DISTANCES", "Distance", "Neighbours", "Pool"]

Distance = Literal["heom", "l1_mad", "l2", "gower"]
DISTANCES = ("heom", "l1_mad", "l2", "gower")

FIRST = 8  # pool rows tried for each wanted neighbour in the first pass
WIDER = 4  # times as many in each further pass
CHUNK = 2**18  # distances that exist at a time
VALUES = 2**22  # numbers of candidates that exist at a time
ROUNDING = 1e-5  # of a distance: how far a bound may be above it


@dataclass(frozen=True, kw_only=True, eq=False)
class Neighbours:
    """The k nearest rows of a pool for each of n rows, nearest first.

    Attributes:
        distance: (n, k), infinite where there is none.
        row: (n, k) positions in the pool, -1 where there is none.
        x: (n, k, d) where these rows lie inside the region, NaN where there is none.
    """

    distance: Tensor
    row: Tensor
    x: Tensor

    @classmethod
    def nothing(cls, x: Tensor, k: int) -> Neighbours:
        """Return no neighbour for the rows of `x` (n, d)."""
        none = torch.full((len(x), k), -1, dtype=torch.long, device=x.device)
        far = torch.full((len(x), k), torch.inf, dtype=x.dtype, device=x.device)
        return cls(
            distance=far, row=none, x=torch.full_like(x, torch.nan)[:, None].repeat(1, k, 1)
        )

    @property
    def ok(self) -> Tensor:
        """(n, k) bool, whether there is a neighbour."""
        return self.row >= 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool:
    """Rows with classes, and a distance that counts a one-hot block as one feature.

    Attributes:
        x: (m, d) encoded rows.
        y: (m,) classes.
        gauge: the distance.
        parts: the rows of each class, ready for blocked distances.

    >>> rows = torch.tensor([[0.0, 0.0], [1.0, 0.2], [0.8, 0.9]])
    >>> pool = Pool.of(rows, torch.tensor([0, 1, 1]), FeatureSpace.continuous(2))
    >>> pool.nearest(rows[:1], torch.tensor([1])).row
    tensor([[1]])
    """

    x: Tensor
    y: Tensor
    gauge: Gauge
    parts: Mapping[int, PoolPart]

    @classmethod
    def of(
        cls,
        x: Tensor,
        y: Tensor,
        space: FeatureSpace,
        distance: Distance = "heom",
        *,
        among: Tensor | None = None,
    ) -> Pool:
        """Build a pool of rows (m, d) with classes (m,); `among` (m,) bool picks the neighbours.

        Distances: "heom" (|difference| / range of the rows, 1 for another category, summed),
        "gower" (the same with the range of the features, averaged), "l1_mad" (|difference| /
        median absolute deviation), "l2" (Euclidean, 1 for the square of another category).
        """
        gauge = Gauge.of(space, x, scale=_scale(x, space, distance), square=distance == "l2")
        picked = y if among is None else y[among]
        parts = {}
        for label in sorted(set(picked.tolist())):
            here = y == label if among is None else (y == label) & among
            parts[int(label)] = gauge.part(x, here.nonzero()[:, 0])
        return cls(x=x, y=y, gauge=gauge, parts=parts)

    def between(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the distances (n,) of rows a (n, d) and b (n, d)."""
        return self.gauge.between(a, b)

    def crowd(self, x: Tensor, target: Tensor, k: int = 5) -> Tensor:
        """Return the mean distance (n,) to the k nearest pool rows of the target classes."""
        out = torch.full_like(x[:, 0], torch.inf)
        for label in sorted(set(target.tolist())):
            part, rows = self.parts.get(int(label)), (target == label).nonzero()[:, 0]
            if part is not None:
                out[rows] = self._lowest(x[rows], part, min(k, len(part)), None)[0].mean(1)
        return out

    def nearest(
        self,
        x: Tensor,
        target: Tensor,
        k: int = 1,
        *,
        region: Region | None = None,
        accept: Test | None = None,
        budget: Budget | None = None,
    ) -> Neighbours:
        """Return the k nearest distinct pool rows of the target classes; ties go to the earlier.

        With a region, a pool row counts where `Region.snap` puts it, and so does its distance;
        rows that end where they came from do not count. The search is exact: pool rows are tried
        in the order of a lower bound of that distance, ever more of them, until no other one can
        be nearer. A row without a neighbour has none in the whole pool, unless the budget ended.

        Args:
            x: (n, d) rows.
            target: (n,) wanted classes.
            k: neighbours per row.
            region: where each row may go; None to take pool rows as they are.
            accept: a further test of the points; it may move them.
            budget: ends the search early.
        """
        out = Neighbours.nothing(x, k)
        for label in sorted(set(target.tolist())):
            part = self.parts.get(int(label))
            todo, count = (target == label).nonzero()[:, 0], FIRST * k
            while part is not None and len(todo):
                left = []
                size = max(1, VALUES // (min(count, len(part)) * x.shape[1]))
                for rows in torch.split(todo, size):
                    open_ = self._pass(x, rows, part, count, region, accept, out)
                    left.append(rows[open_])
                    if budget is not None and budget.expired:
                        return out
                todo, count = torch.cat(left), WIDER * count
        return out

    def _pass(
        self,
        x: Tensor,
        rows: Tensor,
        part: PoolPart,
        count: int,
        region: Region | None,
        accept: Test | None,
        out: Neighbours,
    ) -> Tensor:
        """Try the `count` lowest bounds and record the best; tell (a,) which rows are open."""
        count, k = min(count, len(part)), out.row.shape[1]
        here = None if region is None else region.select(rows)
        floor, which = self._lowest(x[rows], part, count, here)
        place = part.rows[which]
        flat, source = self.x[place].flatten(0, 1), rows.repeat_interleave(count)
        if accept is not None:
            flat, ok = accept(flat, source)
        else:
            flat = flat if region is None else region.select(source).snap(flat)
            ok = torch.ones_like(flat[:, 0], dtype=torch.bool)
        ok = ok & (flat != x[source]).any(1)
        far = self.between(x[source], flat).masked_fill(~ok, torch.inf).reshape(-1, count)
        points = flat.reshape(len(rows), count, -1)
        if k > 1:
            far = far.masked_fill(_repeats(points, place, far.isfinite()), torch.inf)
        best, order = far.gather(1, place.argsort(1)).sort(dim=1, stable=True)
        order = place.argsort(1).gather(1, order)[:, :k]
        k = order.shape[1]
        known = best[:, :k].isfinite()
        out.distance[rows, :k] = best[:, :k]
        out.row[rows, :k] = torch.where(known, place.gather(1, order), -1)
        spots = points.gather(1, order[..., None].expand(-1, -1, points.shape[2]))
        out.x[rows, :k] = torch.where(known[..., None], spots, torch.full_like(spots, torch.nan))
        if count == len(part):
            return torch.zeros_like(known[:, 0])
        sure = floor[:, -1] * (1 - ROUNDING) - self.gauge.slack
        return ~(best[:, k - 1] < sure)

    def _lowest(
        self, x: Tensor, part: PoolPart, count: int, region: Region | None
    ) -> tuple[Tensor, Tensor]:
        """Return the `count` lowest bounds (a, count) and whose they are, ties to the earlier."""
        values, places = [], []
        index = torch.arange(len(part), device=x.device)
        for at in torch.split(torch.arange(len(x), device=x.device), max(1, CHUNK // len(part))):
            floor = self.gauge.floors(x[at], part, None if region is None else region.select(at))
            key = (floor.float().view(torch.int32).long() << 32) | index  # unique, same order
            key = key.topk(count, dim=1, largest=False, sorted=True).values
            places.append(key & 0xFFFFFFFF)
            values.append(floor.gather(1, places[-1]))
        return torch.cat(values), torch.cat(places)


def _repeats(points: Tensor, place: Tensor, ok: Tensor) -> Tensor:
    """Tell (a, c) which points (a, c, d) equal one of an earlier pool row."""
    keys = row_keys(points.flatten(0, 1), 0).reshape(place.shape)
    keys = torch.where(ok, keys, place)  # what does not count repeats nothing
    first = place.argsort(1)
    same, order = keys.gather(1, first).sort(dim=1, stable=True)
    again = torch.zeros_like(ok)
    again[:, 1:] = same[:, 1:] == same[:, :-1]
    return torch.zeros_like(ok).scatter(1, first.gather(1, order), again)


def _scale(x: Tensor, space: FeatureSpace, distance: str) -> Tensor:
    """Return (d,) what one unit of each number costs, and a change of category, per column."""
    if distance not in DISTANCES:
        raise ConfigError(f"unknown distance {distance!r}; use one of {list(DISTANCES)}")
    one = torch.ones_like(x[0])
    if distance == "l2":
        return one
    if distance == "l1_mad":
        numeric = torch.zeros_like(one, dtype=torch.bool)
        numeric[torch.as_tensor(space.numeric_columns, device=x.device)] = True
        return torch.where(numeric, 1 / torch.as_tensor(mad_scale(x.cpu(), space)).to(x), one)
    if distance == "heom":
        width = x.amax(0) - x.amin(0)
        return torch.where(width > 0, 1 / width.clamp(min=1e-30), one)
    width = torch.as_tensor(space.vector("upper") - space.vector("lower")).to(x)
    known = width.isfinite() & (width > 0)
    return torch.where(known, 1 / width.clamp(min=1e-30), one) / len(space)
