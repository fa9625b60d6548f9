"""The feasible set around each row: box x simplices, grids and constraints between features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from cel.errors import DataError
from cel.space._arrays import array_in_array_out, to_tensor
from cel.space.constraints import Implication
from cel.space.feature_space import FeatureSpace
from cel.space.layout import Layout, implications
from cel.space.simplex import project_simplex

__all__ = ["Region"]

TOLERANCE = 1e-6  # of a unit-scaled column


@dataclass(frozen=True, eq=False)
class Region:
    """Where each row may go. The row itself is always inside.

    Bounds, directions and constraints that the row breaks already are widened just so far that
    the row fits: nobody is asked to repair what they did not choose.

    Attributes:
        space: the features.
        origin: (n, d) rows.
        lower: (n, d) smallest values.
        upper: (n, d) largest values.
        reachable: (n, d) bool, whether a one-hot column may be switched on.
        layout: column-wise tensors of the space.

    >>> space = FeatureSpace.continuous(2)
    >>> space.region(torch.tensor([[0.5, 0.5]])).project(torch.tensor([[2.0, 0.3]]))
    tensor([[1.0000, 0.3000]])
    """

    space: FeatureSpace
    origin: Tensor
    lower: Tensor
    upper: Tensor
    reachable: Tensor
    layout: Layout

    @classmethod
    def around(cls, space: FeatureSpace, origin: Any) -> Region:
        """Build the region of each row of `origin` (n, d); arrays and tensors are welcome."""
        x = to_tensor(origin)
        if x.ndim != 2 or x.shape[1] != space.width:
            raise DataError(f"expected rows of {space.width} columns, got shape {tuple(x.shape)}")
        lay = Layout.of(space, x)
        lower = torch.minimum(lay.lower, x)
        upper = torch.maximum(lay.upper, x)
        lower = torch.where(lay.up | ~lay.mutable, x, lower)
        upper = torch.where(lay.down | ~lay.mutable, x, upper)
        reachable = (lay.reachable & lay.mutable) | (x > 0.5)
        return cls(space, x, lower, upper, reachable, lay)

    def __len__(self) -> int:
        return len(self.origin)

    @cached_property
    def fixed(self) -> Tensor:
        """(n, d) bool, whether a column cannot move."""
        lay = self.layout
        fixed = torch.where(
            lay.numeric, self.lower >= self.upper, torch.zeros_like(self.reachable)
        )
        if lay.blocks.numel():
            choices = (self._in_blocks(self.reachable) & lay.real).sum(-1)  # (n, g)
            stuck = self._to_columns((choices <= 1)[..., None].expand(-1, -1, lay.blocks.shape[1]))
            fixed = torch.where(lay.numeric, fixed, stuck)
        return fixed

    def freeze(self, features: Any) -> Region:
        """Fix features at the origin; `features` is a bool mask of shape (p,) or (n, p)."""
        mask = torch.as_tensor(features, dtype=torch.bool, device=self.origin.device)
        columns = mask.expand(len(self), len(self.space))[:, self.layout.owner]
        return replace(
            self,
            lower=torch.where(columns, self.origin, self.lower),
            upper=torch.where(columns, self.origin, self.upper),
            reachable=torch.where(columns, self.origin > 0.5, self.reachable),
        )

    def select(self, rows: Any) -> Region:
        """Return the region of some rows, given as indices or a mask; indices may repeat."""
        names = ("origin", "lower", "upper", "reachable")
        return replace(self, **{n: getattr(self, n)[rows] for n in names})

    @array_in_array_out
    def project(self, x: Any) -> Any:
        """Return the nearest point of box x simplices, shape (n, d).

        Blocks are independent, so projecting each one is the exact Euclidean projection. Grids and
        constraints between features are left to `snap`.
        """
        x = to_tensor(x, self.origin)
        lay = self.layout
        out = torch.minimum(torch.maximum(x, self.lower), self.upper)
        if lay.blocks.numel():
            allowed = self._in_blocks(self.reachable) & lay.real
            blocks = project_simplex(self._in_blocks(x), allowed | self._no_choice(allowed))
            out = torch.where(lay.numeric, out, self._to_columns(blocks))
        return torch.where(self.fixed, self.origin, out)

    @array_in_array_out
    def snap(self, x: Any) -> Any:
        """Return a decodable point of the region near `x`: categories, grids, constraints kept."""
        x = to_tensor(x, self.origin)
        x = torch.where(self.layout.numeric, self._snap_numbers(x), self._snap_categories(x))
        x = torch.where(self.fixed, self.origin, x)
        return self._repair(x) if self.space.constraints else x

    @array_in_array_out
    def contains(self, x: Any) -> Any:
        """Tell for each row whether `x` (n, d) is decodable and feasible, shape (n,)."""
        x = to_tensor(x, self.origin)
        broken = torch.stack(list(self.violations(x).values())).sum(0)
        return (broken == 0) & x.isfinite().all(-1)

    @array_in_array_out
    def violations(self, x: Any) -> Any:
        """Count the violations of each row by kind, each of shape (n,).

        The kinds are immutable, direction, bound, category, integer and relation.
        """
        x = to_tensor(x, self.origin)
        lay, moved = self.layout, (x - self.origin).abs() > TOLERANCE
        wrong_way = (lay.up & (x < self.origin - TOLERANCE)) | (
            lay.down & (x > self.origin + TOLERANCE)
        )
        outside = (x < torch.minimum(lay.lower, self.origin) - TOLERANCE) | (
            x > torch.maximum(lay.upper, self.origin) + TOLERANCE
        )
        off_grid = (self._nearest_grid(x) - x).abs() > TOLERANCE
        return {
            "immutable": self._count_features(self.fixed & moved & ~lay.up & ~lay.down),
            "direction": (wrong_way & lay.numeric & lay.mutable).sum(-1),
            "bound": (outside & lay.numeric & ~self.fixed).sum(-1),
            "category": self._broken_blocks(x),
            "integer": (off_grid & (lay.step > 0) & moved & ~self.fixed).sum(-1),
            "relation": self._broken_constraints(x).sum(-1),
        }

    # -- numbers -----------------------------------------------------------------------------

    def _nearest_grid(self, x: Tensor) -> Tensor:
        lay = self.layout
        step = torch.where(lay.step > 0, lay.step, torch.ones_like(lay.step))
        return torch.where(lay.step > 0, lay.anchor + step * ((x - lay.anchor) / step).round(), x)

    def _snap_numbers(self, x: Tensor) -> Tensor:
        lay = self.layout
        inside = torch.minimum(torch.maximum(x, self.lower), self.upper)
        grid = self._nearest_grid(inside)
        # Rounding may leave the box by less than a step: take the grid point on the other side.
        grid = torch.where(grid > self.upper + TOLERANCE, grid - lay.step, grid)
        grid = torch.where(grid < self.lower - TOLERANCE, grid + lay.step, grid)
        outside = (grid > self.upper + TOLERANCE) | (grid < self.lower - TOLERANCE)
        home = outside | ((grid - self.origin).abs() <= TOLERANCE) | (inside == self.origin)
        return torch.where((lay.step > 0) & home, self.origin, grid)

    # -- categories --------------------------------------------------------------------------

    def _in_blocks(self, x: Tensor) -> Tensor:
        """(n, d) -> (n, g, k)."""
        return x[:, self.layout.blocks]

    def _to_columns(self, blocks: Tensor) -> Tensor:
        """(n, g, k) -> (n, d); numeric columns are zero."""
        out = torch.zeros(len(blocks), self.space.width, dtype=blocks.dtype, device=blocks.device)
        out[:, self.layout.blocks[self.layout.real]] = blocks[:, self.layout.real]
        return out

    def _no_choice(self, allowed: Tensor) -> Tensor:
        """Open the first column of blocks with no reachable category; `fixed` closes it again."""
        empty = ~allowed.any(-1, keepdim=True)
        first = torch.zeros_like(allowed)
        first[..., 0] = True
        return empty & first

    def _snap_categories(self, x: Tensor) -> Tensor:
        lay = self.layout
        if not lay.blocks.numel():
            return x
        low = torch.finfo(x.dtype).min
        allowed = self._in_blocks(self.reachable) & lay.real
        score = torch.where(
            allowed, self._in_blocks(x), torch.full_like(x[:1, :1], low)[..., None]
        )
        present = (self._in_blocks(self.origin) > 0.5) & lay.real
        best = score.amax(-1, keepdim=True)
        stay = (present & (score >= best)).any(-1)
        choice = torch.where(stay, present.to(x.dtype).argmax(-1), score.argmax(-1))
        hard = torch.nn.functional.one_hot(choice, lay.blocks.shape[1]).to(x.dtype)
        unknown = ~present.any(-1) & (self._in_blocks(x).abs() * lay.real < TOLERANCE).all(-1)
        return self._to_columns(torch.where(unknown[..., None], torch.zeros_like(hard), hard))

    def _broken_blocks(self, x: Tensor) -> Tensor:
        lay = self.layout
        if not lay.blocks.numel():
            return torch.zeros(len(x), dtype=torch.long, device=x.device)
        block = self._in_blocks(x) * lay.real
        soft = (torch.minimum(block.abs(), (block - 1).abs()) > TOLERANCE).any(-1)
        not_one = (block.sum(-1) - 1).abs() > TOLERANCE
        forbidden = ((block > 0.5) & ~self._in_blocks(self.reachable)).any(-1)
        same = ((block - self._in_blocks(self.origin) * lay.real).abs() <= TOLERANCE).all(-1)
        return ((soft | not_one | forbidden) & ~same).sum(-1)

    def _count_features(self, columns: Tensor) -> Tensor:
        """(n, d) bool -> (n,) number of features with at least one true column."""
        hits = torch.zeros(len(columns), len(self.space), device=columns.device)
        hits.index_add_(1, self.layout.owner, columns.to(hits.dtype))
        return (hits > 0).sum(-1)

    # -- constraints between features --------------------------------------------------------

    @cached_property
    def _slack_bounds(self) -> Tensor:
        """(n, r) bounds, widened where the origin breaks the relation itself."""
        return torch.maximum(self.layout.bounds, self.origin @ self.layout.relations.T)

    @cached_property
    def _excused(self) -> Tensor:
        """(n, i) implications that the origin breaks itself."""
        return self._broken_implications(self.origin)

    def _broken_implications(self, x: Tensor) -> Tensor:
        rules = implications(self.space)
        broken = [self._given(x, r) & ~self._then(x, r) for r in rules]
        empty = torch.zeros(len(x), 0, dtype=torch.bool, device=x.device)
        return torch.stack(broken, -1) if broken else empty

    def _given(self, x: Tensor, rule: Implication) -> Tensor:
        return self._has_value(x, rule.feature, rule.values)

    def _then(self, x: Tensor, rule: Implication) -> Tensor:
        return self._has_value(x, rule.then_feature, rule.then_values)

    def _has_value(self, x: Tensor, name: str, values: tuple[Any, ...]) -> Tensor:
        feature = self.space[name]
        ranks = [feature.categories.index(v) for v in values]
        if feature.one_hot:
            return x[:, [feature.columns[r] for r in ranks]].sum(-1) > 0.5
        step = feature.step or 1.0
        targets = torch.tensor([feature.anchor + step * r for r in ranks]).to(x)
        return ((x[:, feature.columns[0], None] - targets).abs() < step / 2).any(-1)

    def _broken_constraints(self, x: Tensor) -> Tensor:
        """(n, r + i) bool: linear relations first, then implications."""
        value = x @ self.layout.relations.T
        scale = self.layout.relations.abs().sum(-1).clamp(min=1.0)
        linear = value > self._slack_bounds + TOLERANCE * scale
        return torch.cat([linear, self._broken_implications(x) & ~self._excused], -1)

    def _repair(self, x: Tensor) -> Tensor:
        """Pull broken relations towards the origin, then give back what is still broken."""
        x = torch.where(self.layout.numeric, self._snap_numbers(self._pull(x)), x)
        names = [c.features for c in self._ordered_constraints()]
        for _ in range(len(names) + 1):
            broken = self._broken_constraints(x)
            if not broken.any():
                break
            for i, involved in enumerate(names):
                columns = [c for n in involved for c in self.space[n].columns]
                x[:, columns] = torch.where(
                    broken[:, i, None], self.origin[:, columns], x[:, columns]
                )
        return x

    def _ordered_constraints(self) -> list[Any]:
        rules = implications(self.space)
        return [c for c in self.space.constraints if c not in rules] + list(rules)

    def _pull(self, x: Tensor) -> Tensor:
        """Shrink the changes in each broken relation until it holds (closed form)."""
        for i, row in enumerate(self.layout.relations):
            home, value = self.origin @ row, x @ row
            room = (self._slack_bounds[:, i] - home).clamp(min=0)
            share = torch.where(
                value > self._slack_bounds[:, i],
                room / (value - home).clamp(min=1e-12),
                torch.ones_like(value),
            )
            pulled = self.origin + share[:, None] * (x - self.origin)
            x = torch.where((row != 0) & self.layout.numeric, pulled, x)
        return x
