"""The best points that a search has seen for each row."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from cel.cf_methods.local_methods.cearm_goal import Goal
from cel.cf_methods.query import MARGIN

__all__ = ["Incumbents"]


@dataclass(eq=False)
class Incumbents:
    """The best points of each row so far.

    Attributes:
        x: (n, d) point of highest utility, at first the row itself.
        utility: (n,) potential times exp(-rho distance).
        answer: (n, d) nearest point that reached the goal, NaN for none.
        distance: (n,) its distance.
        closest: (n, d) point of smallest error.
        error: (n,) its error.
        stale: (n,) rounds since a usable point last improved.
    """

    x: Tensor
    utility: Tensor
    answer: Tensor
    distance: Tensor
    closest: Tensor
    error: Tensor
    stale: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Incumbents:
        """Start at the rows themselves."""
        zero = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        none = torch.full_like(x, torch.nan)
        far = torch.full_like(zero, torch.inf)
        return cls(x.clone(), zero, none, far, none.clone(), far.clone(), zero.clone())

    @classmethod
    def join(cls, parts: list[Incumbents], x: Tensor) -> Incumbents:
        """Put the incumbents of consecutive rows of `x` (n, d) together."""
        if not parts:
            return cls.of(x)
        return cls(*(torch.cat([getattr(p, f.name) for p in parts]) for f in fields(cls)))

    def centre(self, rows: Tensor) -> Tensor:
        """Return where to search on: around the answer, or the point of highest utility."""
        return torch.where(self.answer[rows].isnan(), self.x[rows], self.answer[rows])

    def update(
        self, rows: Tensor, x: Tensor, utility: Tensor, error: Tensor, distance: Tensor, goal: Goal
    ) -> None:
        """Take in points (a, b, d) with their utility, error and distance (a, b)."""
        here = torch.arange(len(rows), device=rows.device)
        value, index = utility.max(1)
        better = value > self.utility[rows]
        self.x[rows[better]] = x[here, index][better]
        self.utility[rows[better]] = value[better]
        value, index = error.min(1)
        better = value < self.error[rows]
        nearer_goal = value < 0.95 * self.error[rows]
        self.closest[rows[better]] = x[here, index][better]
        self.error[rows[better]] = value[better]
        value, index = distance.masked_fill(error > goal.eps, torch.inf).min(1)
        better = value < self.distance[rows]
        nearer_home = value < 0.99 * self.distance[rows]
        self.answer[rows[better]] = x[here, index][better]
        self.distance[rows[better]] = value[better]
        answered = self.distance[rows].isfinite()
        moved = torch.where(answered, nearer_home, nearer_goal)
        usable = self.error[rows] <= goal.model.tolerance - MARGIN
        self.stale[rows] = torch.where(moved, torch.zeros_like(value), self.stale[rows] + usable)
