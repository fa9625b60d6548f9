"""Tangents that are remembered: old ones still bound a surplus where it is concave."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from cel.solvers.closed_forms import Nearest
from cel.solvers.linearised import Linearise, Solve

__all__ = ["Cuts"]

BELOW = 1e-6  # rounding that does not refute a tangent


class Cuts:
    """The last tangents of some surpluses of every row, as further half-spaces of its program.

    One tangent says nothing about curvature, so that steps along a curved boundary stay short.
    Where a surplus is concave, it lies below all its tangents, and several of them enclose the
    boundary (Kelley, 1960). A tangent that some later point lies above is forgotten.

    Args:
        linearise: surpluses and their gradients.
        solve: the cheapest offset from the centre for linear surpluses.
        center: (n, d).
        last: so many last surpluses are remembered.
        memory: tangents kept of each.
    """

    def __init__(
        self, linearise: Linearise, solve: Solve, center: Tensor, *, last: int, memory: int = 8
    ) -> None:
        self._linearise, self._solve, self.center, self.last = linearise, solve, center, last
        shape = (len(center), memory, last)
        self.gap = torch.full(shape, -1.0).to(center)  # with a slope of 0: no demand
        self.slope = torch.zeros(*shape, center.shape[1]).to(center)

    def linearise(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return surpluses and gradients, and remember them."""
        surplus, slope = self._linearise(x, rows)
        away, now, slopes = x - self.center[rows], surplus[:, -self.last :], slope[:, -self.last :]
        gap = (slopes * away[:, None]).sum(-1) - now
        told = (self.slope[rows] * away[:, None, None]).sum(-1) - self.gap[rows]
        wrong = told < (now - BELOW * (1 + now.abs()))[:, None]
        old_gap = torch.where(wrong, -torch.ones_like(told), self.gap[rows])
        old_slope = self.slope[rows] * ~wrong[..., None]
        self.gap[rows] = torch.cat([gap[:, None], old_gap[:, :-1]], 1)
        self.slope[rows] = torch.cat([slopes[:, None], old_slope[:, :-1]], 1)
        return surplus, slope

    def solve(self, w: Tensor, gap: Tensor, low: Tensor, high: Tensor, rows: Tensor) -> Nearest:
        """Solve with the remembered tangents; a surplus has the dual value of all of them."""
        wider = torch.cat([w, self.slope[rows].flatten(1, 2)], 1)
        more = torch.cat([gap, self.gap[rows].flatten(1)], 1)
        best = self._solve(wider, more, low, high, rows)
        dual, old = best.dual.tensor_split([gap.shape[1]], 1)
        old = old.reshape(len(old), -1, self.last).sum(1)
        both = torch.cat([dual[:, : -self.last], dual[:, -self.last :] + old], 1)
        return replace(best, dual=both)
