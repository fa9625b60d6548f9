"""Constraints between features around given rows: which ones a candidate breaks, and repair."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from cel.space.constraints import Implication, LinearRelation
from cel.space.feature_space import FeatureSpace
from cel.space.layout import TOLERANCE, Layout

__all__ = ["Rules"]

TURNS = 3


@dataclass(frozen=True, eq=False)
class Rules:
    """The relations and implications of a space; what the origin breaks itself is excused.

    Attributes:
        space: the features.
        layout: column-wise tensors of the space.
        origin: (n, d) rows.
    """

    space: FeatureSpace
    layout: Layout
    origin: Tensor

    @cached_property
    def columns(self) -> list[list[int]]:
        """Columns that take part in each constraint: linear relations first, then implications."""
        kinds = (LinearRelation, Implication)
        ordered = [c for kind in kinds for c in self.space.constraints if isinstance(c, kind)]
        return [[c for n in rule.features for c in self.space[n].columns] for rule in ordered]

    def select(self, rows: Tensor) -> Rules:
        """Return the rules around some of the rows; bounds are kept to the bit."""
        part = replace(self, origin=self.origin[rows])
        part.__dict__["bounds"] = self.bounds[rows]
        return part

    @cached_property
    def bounds(self) -> Tensor:
        """(n, r) bounds, widened where the origin breaks the relation itself."""
        return torch.maximum(self.layout.bounds, self.origin @ self.layout.relations.T)

    @cached_property
    def _slack(self) -> Tensor:
        """(r,) what rounding may add to the left sides."""
        lay = self.layout
        return (lay.relations.abs() @ lay.tolerance).clamp(min=TOLERANCE)

    @cached_property
    def _excused(self) -> Tensor:
        """(n, i) implications that the origin breaks itself."""
        return self._broken_implications(self.origin)

    def broken(self, x: Tensor) -> Tensor:
        """(n, r + i) bool: which constraints the rows of `x` (n, d) break."""
        implications = self._broken_implications(x) & ~self._excused
        return torch.cat([self.broken_relations(x), implications], -1)

    def broken_relations(self, x: Tensor) -> Tensor:
        """(n, r) bool: which linear relations the rows of `x` (n, d) break."""
        return x @ self.layout.relations.T > self.bounds + self._slack

    def pull(self, x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """Move the numbers of each broken relation to the nearest point of the box that keeps it.

        Columns that reach a bound stay there and the others go on; relations take turns, as one
        may disturb another.
        """
        x = x.clone()
        for _ in range(TURNS):
            broken = self.broken_relations(x)
            if not bool(broken.any()):
                break
            for i, row in enumerate(self.layout.relations):
                at = broken[:, i].nonzero()[:, 0]
                if not len(at):
                    continue
                low, high, near = lower[at], upper[at], x[at]
                step = torch.where(self.layout.numeric, row, torch.zeros_like(row))
                for _ in range(TURNS):
                    excess = (near @ row - self.bounds[at, i]).clamp(min=0)
                    free = torch.where(step > 0, near > low, near < high) * step
                    share = excess / (free * free).sum(-1).clamp(min=1e-12)
                    near = torch.clamp(near - share[:, None] * free, low, high)
                x[at] = near
        return x

    def lean(self, x: Tensor) -> Tensor:
        """(n, d) in [-1, 1]: where rounding up (+) helps the relations that `x` breaks."""
        broken = self.broken_relations(x).to(x.dtype)
        return -(broken @ self.layout.relations.sign()).clamp(-1, 1)

    def give_back(self, x: Tensor) -> Tensor:
        """Reset the features of broken constraints to the origin until none is broken.

        A constraint whose features are all at the origin holds, so each pass settles at least one.
        """
        for _ in range(len(self.columns) + 1):
            broken = self.broken(x)
            if not broken.any():
                break
            for i, columns in enumerate(self.columns):
                x[:, columns] = torch.where(
                    broken[:, i, None], self.origin[:, columns], x[:, columns]
                )
        return x

    def _broken_implications(self, x: Tensor) -> Tensor:
        rules = [c for c in self.space.constraints if isinstance(c, Implication)]
        broken = [
            self._has_value(x, r.feature, r.values)
            & ~self._has_value(x, r.then_feature, r.then_values)
            for r in rules
        ]
        empty = torch.zeros(len(x), 0, dtype=torch.bool, device=x.device)
        return torch.stack(broken, -1) if broken else empty

    def _has_value(self, x: Tensor, name: str, values: tuple[Any, ...]) -> Tensor:
        feature = self.space[name]
        ranks = [feature.categories.index(v) for v in values]
        if feature.one_hot:
            return x[:, [feature.columns[r] for r in ranks]].sum(-1) > 0.5
        step = feature.step or 1.0
        targets = torch.tensor([feature.anchor + step * r for r in ranks]).to(x)
        return ((x[:, feature.columns[0], None] - targets).abs() < step / 2).any(-1)
