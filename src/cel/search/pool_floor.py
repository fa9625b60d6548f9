"""Lower bounds of the distance from a row to where its region puts each row of a pool.

A region moves a pool row feature by feature: numbers are clipped, categories that cannot be
reached are given back, fixed features stay. Only constraints between features act on several at
once; they pull the features that they join, so that these count nothing wherever a constraint may
be broken.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cel.errors import ConfigError
from cel.space import Feature, FeatureSpace
from cel.space.constraints import Constraint, Implication, LinearRelation
from cel.space.layout import TOLERANCE
from cel.space.region import Region

__all__ = ["Gauge", "PoolPart"]


@dataclass(frozen=True, kw_only=True, eq=False)
class PoolPart:
    """Rows of one class, feature by feature.

    Attributes:
        rows: (m,) positions in the pool.
        features: one vector (m,) per feature: numbers, or positions of categories (the number of
            categories where none is set).
        reach: (m,) bool for ordinals of which only some ranks may be reached: one of these.
        low: smallest value of each feature.
        high: largest value of each feature.
    """

    rows: Tensor
    features: tuple[Tensor, ...]
    reach: tuple[Tensor | None, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class Gauge:
    """A distance that is a sum over features, or the root of a sum of squares.

    Attributes:
        space: the features.
        price: (d,) what a unit of a number costs; for one-hot columns what a change costs.
        square: whether differences are squared and the root of the sum is taken.
        slack: how much nearer than its bound a row may end because it was not on a grid.
        off_grid: whether rows of the pool lie beside their grids by more than rounding.
    """

    space: FeatureSpace
    price: Tensor
    square: bool
    slack: float
    off_grid: bool

    @classmethod
    def of(cls, space: FeatureSpace, x: Tensor, *, scale: Tensor, square: bool) -> Gauge:
        """Build a distance with prices `scale` (d,) for a pool of rows `x` (m, d)."""
        for f in space.categorical_features:
            if not f.one_hot:
                raise ConfigError(
                    f"categorical feature {f.name!r} is not one-hot; a pool needs encoded rows"
                )
        slack, off_grid = 0.0, False
        for f in space:
            if f.step and len(x):
                value = x[:, f.columns[0]]
                grid = f.anchor + f.step * ((value - f.anchor) / f.step).round()
                off = float((value - grid).abs().max())
                slack += (off + TOLERANCE) * float(scale[f.columns[0]])
                off_grid |= off > 1e-4 * f.step
        return cls(space=space, price=scale, square=square, slack=slack, off_grid=off_grid)

    def part(self, x: Tensor, rows: Tensor) -> PoolPart:
        """Prepare some rows of a pool (m, d)."""
        features = tuple(
            _codes(x[rows][:, list(f.columns)])
            if f.one_hot
            else x[rows, f.columns[0]].contiguous()
            for f in self.space
        )
        return PoolPart(
            rows=rows,
            features=features,
            reach=tuple(_reachable(f, v) for f, v in zip(self.space, features, strict=True)),
            low=tuple(float(v.min()) for v in features),
            high=tuple(float(v.max()) for v in features),
        )

    def between(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the distances (n,) of rows a (n, d) and b (n, d)."""
        total = torch.zeros_like(a[:, 0])
        for f in self.space:
            columns = list(f.columns)
            gap = (a[:, columns] - b[:, columns]).abs()
            gap = (gap > 0.5).any(1).to(a.dtype) if f.one_hot else gap[:, 0]
            total += self._cost(gap, columns[0])
        return total.sqrt() if self.square else total

    def floors(self, x: Tensor, part: PoolPart, region: Region | None) -> Tensor:
        """Return (a, m): the rows of the pool are no nearer than this once inside the region.

        Args:
            x: (a, d) rows.
            part: m rows of the pool.
            region: the regions of the rows; None for plain distances.
        """
        total = x.new_zeros(len(x), len(part))
        joined = _Joined(self, x, part, region)
        for i, f in enumerate(self.space):
            if not joined.takes(f.name):
                self._add(total, x, part, region, i)
        joined.add_to(total)
        return total.sqrt() if self.square else total

    def _add(
        self, total: Tensor, x: Tensor, part: PoolPart, region: Region | None, i: int
    ) -> None:
        """Add what feature i costs to `total` (a, m)."""
        f = self.space.features[i]
        column = f.columns[0]
        if f.one_hot:
            moves = _moves(x, region, f.columns)
            table = self._cost(moves.to(x.dtype), column)
            if bool(moves.any()):
                total += table[:, part.features[i]]
            return
        if region is not None and bool(region.fixed[:, column].all()):
            return
        reach, price = part.reach[i], float(self.price[column])
        gap = (_clipped(part, region, i, column) - x[:, column, None]).abs_()
        loose = _loose(f, part, region, i)
        if loose is not None:  # what is clipped may go on to the next grid point inside
            gap = torch.where(loose, (gap - (f.step or 0.0)).clamp(min=0), gap)
        if reach is not None and region is not None:  # a rank that is not reached goes anywhere
            gap = gap * (reach if loose is None else reach & ~loose)
        if self.square:
            total.addcmul_(gap, gap, value=price * price)
        else:
            total.add_(gap, alpha=price)

    def _cost(self, gap: Tensor, column: int) -> Tensor:
        cost = gap * self.price[column]
        return cost * cost if self.square else cost


def _moves(x: Tensor, region: Region | None, columns: tuple[int, ...]) -> Tensor:
    """Tell (a, k + 1) whether a pool row with a category moves the row; none set: it does not."""
    moves = x[:, list(columns)] <= 0.5
    if region is not None:
        moves &= region.reachable[:, list(columns)]
    return torch.cat([moves, torch.zeros_like(moves[:, :1])], 1)


def _box(part: PoolPart, region: Region | None, i: int, column: int) -> tuple[Tensor, ...]:
    """Return the bounds (a, 1) of feature i, or nothing where no value of the pool is outside."""
    if region is None:
        return ()
    low, high = region.lower[:, column, None], region.upper[:, column, None]
    inside = bool((low <= part.low[i]).all()) and bool((high >= part.high[i]).all())
    return () if inside else (low, high)


def _clipped(part: PoolPart, region: Region | None, i: int, column: int) -> Tensor:
    """Return (a, m) or (1, m): the values of feature i, clipped into the box of each row."""
    values, box = part.features[i][None, :], _box(part, region, i, column)
    return torch.clamp(values, box[0], box[1]) if box else values


def _loose(f: Feature, part: PoolPart, region: Region | None, i: int) -> Tensor | None:
    """Tell (a, m) which values of a grid feature may be moved on after clipping; None: none."""
    box = _box(part, region, i, f.columns[0])
    if not box or not f.step:
        return None
    edges = torch.cat(box, 1)
    on_grid = f.anchor + f.step * ((edges - f.anchor) / f.step).round()
    if part.reach[i] is None and bool(((edges - on_grid).abs() <= TOLERANCE).all()):
        return None
    values = part.features[i][None, :]
    return (values < box[0]) | (values > box[1])


class _Joined:
    """Features that constraints join: they count only where no constraint can be broken."""

    def __init__(self, gauge: Gauge, x: Tensor, part: PoolPart, region: Region | None) -> None:
        self.gauge, self.x, self.part, self.region = gauge, x, part, region
        rules = () if region is None else gauge.space.constraints
        self.groups = _components(rules)
        self.names = {n for group in self.groups for rule in group for n in rule.features}

    def takes(self, name: str) -> bool:
        return name in self.names

    def add_to(self, total: Tensor) -> None:
        for group in self.groups:
            cost, broken = torch.zeros_like(total), torch.zeros_like(total, dtype=torch.bool)
            for name in dict.fromkeys(n for rule in group for n in rule.features):
                i = self.gauge.space.names.index(name)
                self.gauge._add(cost, self.x, self.part, self.region, i)
            for rule in group:
                if isinstance(rule, LinearRelation):
                    broken |= self._above(rule)
                else:
                    broken |= self._unkept(rule)
            total += cost.masked_fill_(broken, 0)

    def _above(self, rule: LinearRelation) -> Tensor:
        """Tell (a, m) where the clipped values come near the bound of a relation or beyond."""
        value = torch.zeros(len(self.x), len(self.part)).to(self.x)
        own, unsure = torch.zeros_like(self.x[:, :1]), torch.zeros_like(value, dtype=torch.bool)
        for name, c in rule.terms:
            f, i = self.gauge.space[name], self.gauge.space.names.index(name)
            column, reach = f.columns[0], self.part.reach[i]
            here = self.x[:, column, None]
            value += c * _clipped(self.part, self.region, i, column)
            own = own + c * here
            loose = _loose(f, self.part, self.region, i)
            if loose is not None:  # clipped values may go on to a grid point, unless at home
                unsure |= loose & (_clipped(self.part, self.region, i, column) != here)
            if reach is not None:
                unsure |= ~reach
        off_grid = self.gauge.off_grid
        return unsure | off_grid | (value > own.clamp(min=rule.bound) + TOLERANCE / 2)

    def _unkept(self, rule: Implication) -> Tensor:
        """Tell (a, m) where an implication may be broken."""
        return self._may_have(rule.feature, rule.values) & ~self._must_have(
            rule.then_feature, rule.then_values
        )

    def _may_have(self, name: str, values: tuple[object, ...]) -> Tensor:
        f = self.gauge.space[name]
        if not f.one_hot:  # a rank: not worth a closer look
            return torch.ones(len(self.x), len(self.part), dtype=torch.bool, device=self.x.device)
        return self._has(name, values)

    def _must_have(self, name: str, values: tuple[object, ...]) -> Tensor:
        f = self.gauge.space[name]
        if not f.one_hot:
            return torch.zeros(len(self.x), len(self.part), dtype=torch.bool, device=self.x.device)
        return self._has(name, values)

    def _has(self, name: str, values: tuple[object, ...]) -> Tensor:
        """Tell (a, m) whether the category after the move is one of some values."""
        f, i = self.gauge.space[name], self.gauge.space.names.index(name)
        wanted = torch.tensor([c in values for c in f.categories] + [False], device=self.x.device)
        own = (self.x[:, list(f.columns)] > 0.5) & wanted[:-1]
        moves = _moves(self.x, self.region, f.columns)
        table = torch.where(moves, wanted, own.any(1, keepdim=True))
        return table[:, self.part.features[i]]


def _components(rules: tuple[Constraint, ...]) -> list[list[Constraint]]:
    """Group constraints that share features, directly or through others."""
    groups: list[tuple[set[str], list[Constraint]]] = []
    for rule in rules:
        names, members = set(rule.features), [rule]
        for group in [g for g in groups if g[0] & names]:
            groups.remove(group)
            names, members = names | group[0], group[1] + members
        groups.append((names, members))
    return [members for _, members in groups]


def _codes(block: Tensor) -> Tensor:
    """Return the position (m,) of the category of one-hot rows (m, k), k where none is set."""
    best, place = block.max(1)
    return torch.where(best > 0.5, place, block.shape[1])


def _reachable(f: Feature, values: Tensor) -> Tensor | None:
    """Tell (m,) which values of an ordinal feature may be reached; None: all of them."""
    if f.kind != "ordinal" or f.allowed is None:
        return None
    allowed = torch.tensor([*f.allowed_mask, False], device=values.device)
    rank = ((values - f.anchor) / (f.step or 1.0)).round().long()
    return allowed[rank.clamp(-1, len(f.categories))]
