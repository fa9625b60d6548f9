"""Costs that are sums over columns: they have a proximal map and a closed form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from cel.search import LastOf, soft_threshold
from cel.search.gradient import RowFunction
from cel.solvers import Nearest, nearest_all
from cel.space.region import Region

__all__ = ["SeparableCost"]


@dataclass(frozen=True, kw_only=True, eq=False)
class SeparableCost:
    """`sum(l1 |d|) + |d|^2 + theta |x - pull|^2` over numbers, plus prices of categories.

    With d = x - centre. On a one-hot block the cost is the expected price of its category,
    `sum(switch * x)`: linear on the simplex and exact at every decodable point.

    Attributes:
        center: (n, d) where changes are counted from.
        numeric: (d,) bool.
        l1: (d,) weights of |d|.
        l2: whether squares count.
        switch: (n, d) prices of one-hot columns.
        pull: (n, d) a point that attracts, or None.
        theta: its weight.
        extra: a differentiable term without closed form, or None.
        lean: leave columns that cannot move out of the programs, see `nearest_all`.
    """

    center: Tensor
    numeric: Tensor
    l1: Tensor
    l2: bool
    switch: Tensor
    pull: Tensor | None = None
    theta: float = 0.0
    extra: RowFunction | None = None
    lean: bool = False

    @classmethod
    def around(
        cls, region: Region, *, l1: Tensor | float, l2: bool, change: float, center: Tensor
    ) -> SeparableCost:
        """Build a cost in which every change of category costs `change`."""
        numeric = region.layout.numeric
        weights = torch.as_tensor(l1, dtype=center.dtype, device=center.device)
        weights = torch.where(numeric, weights.expand(len(numeric)), torch.zeros_like(center[0]))
        switch = torch.where(numeric, torch.zeros_like(center), change * (1 - center))
        return cls(center=center, numeric=numeric, l1=weights, l2=l2, switch=switch)

    def select(self, rows: Tensor) -> SeparableCost:
        """Return the cost of some rows; row numbers may repeat."""
        pull = None if self.pull is None else self.pull[rows]
        extra, more = None, self.extra
        if more is not None:
            extra = lambda x, r: more(x, rows[r])  # noqa: E731 - mypy needs the narrowed name
        return replace(
            self, center=self.center[rows], switch=self.switch[rows], pull=pull, extra=extra
        )

    def smooth(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return everything but the L1 term, shape (a,)."""
        total = (self.switch[rows] * x).sum(-1)
        if self.l2:
            total = total + self._squares(x - self.center[rows])
        if self.pull is not None and self.theta:
            total = total + self.theta * self._squares(x - self.pull[rows])
        return total if self.extra is None else total + self.extra(x, rows)

    def value(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return the cost of points (a, d), shape (a,)."""
        return self.smooth(x, rows) + ((x - self.center[rows]).abs() * self.l1).sum(-1)

    def smooth_slope(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return `smooth` (a,) and its gradient (a, d) at points (a, d); not `extra`."""
        at = self._at(rows)
        base, first, twice = at._quadratic
        away = x - at.center
        grad = first.clone() if twice is None else torch.addcmul(first, away, twice)
        return torch.add(base, (away * (first + grad)).sum(-1), alpha=0.5), grad

    @cached_property
    def _quadratic(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """(n,) the smooth part at the centre, (n, d) its gradient there, (d,) its curvature."""
        plain = replace(self, extra=None)
        base = plain.smooth(self.center, torch.arange(len(self.center), device=self.center.device))
        first, twice = self.switch, 2.0 * self.l2
        if self.pull is not None and self.theta:
            away = torch.where(self.numeric, self.center - self.pull, torch.zeros_like(self.pull))
            first, twice = first + 2 * self.theta * away, twice + 2 * self.theta
        return base, first, twice * self.numeric.to(first) if twice else None

    @cached_property
    def _at(self) -> LastOf[SeparableCost]:
        return LastOf(self.select)

    def prox(self, x: Tensor, step: Tensor, rows: Tensor) -> Tensor:
        """Return the proximal map of the L1 term for a step size (a, 1) or (a, d)."""
        center = self._at(rows).center
        return center + soft_threshold(x - center, step * self.l1)

    def nearest(
        self, w: Tensor, gap: Tensor, lower: Tensor, upper: Tensor, rows: Tensor
    ) -> Nearest:
        """Return the cheapest offsets from the centre with all `w_c . offset >= gap_c` in a box.

        Args:
            w: (a, c, d) normals.
            gap: (a, c).
            lower: (a, d).
            upper: (a, d).
            rows: (a,) row numbers.
        """
        if not self.l2:
            weight = torch.where(self.numeric, self.l1, torch.ones_like(self.l1))
            return nearest_all(w, gap, lower, upper, l1=weight, square=0.0, lean=self.lean)
        pull = None if self.pull is None else self.pull[rows] - self.center[rows]
        return nearest_all(
            w, gap, lower, upper, l1=self.l1, pull=pull, theta=self.theta, lean=self.lean
        )

    def _squares(self, d: Tensor) -> Tensor:
        return torch.where(self.numeric, d, torch.zeros_like(d)).square().sum(-1)
