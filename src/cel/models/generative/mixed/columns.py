"""Which columns of a space are choices and which are numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cel.space import Feature, FeatureSpace

__all__ = ["Choices", "is_choice", "levels"]


def levels(feature: Feature) -> int:
    """Return the number of grid points of a number; 0 if it is continuous or has no bounds."""
    width = feature.upper - feature.lower
    if feature.step is None or not math.isfinite(width):
        return 0
    return round(width / feature.step) + 1


def is_choice(feature: Feature, max_levels: int) -> bool:
    """Tell whether a feature is a block of one-hot columns or a grid with few points."""
    return feature.one_hot or 0 < levels(feature) <= max_levels


@dataclass(frozen=True)
class _Grid:
    column: int
    lower: float
    step: float
    size: int


class Choices(nn.Module):
    """Turns the discrete columns of a row into blocks of (soft) one-hot columns and back.

    A one-hot block is taken as it is. A number x on the grid l, l + h, ... becomes a block with
    weights max(0, 1 - |(x - l) / h - k|): one at its grid point, shared by two neighbours in
    between, so that everything computed from it is exact on the grid and linear between.

    Args:
        space: encoded feature space.
        max_levels: largest number of grid points that makes a number a choice.
    """

    hat_column: Tensor
    hat_lower: Tensor
    hat_step: Tensor
    hat_level: Tensor
    hat_last: Tensor
    one_hot: Tensor
    rest: Tensor

    def __init__(self, space: FeatureSpace, max_levels: int) -> None:
        super().__init__()
        chosen = [f for f in space if is_choice(f, max_levels)]
        blocks = [f for f in chosen if f.one_hot]
        grids = [
            _Grid(f.columns[0], f.lower, float(f.step or 1.0), levels(f))
            for f in chosen
            if not f.one_hot
        ]
        self.width = space.width
        self.sizes = tuple(len(f.columns) for f in blocks) + tuple(g.size for g in grids)
        taken = {c for f in chosen for c in f.columns}
        hats = [(g, k) for g in grids for k in range(g.size)]
        for name, values in (
            ("one_hot", [c for f in blocks for c in f.columns]),
            ("rest", [c for c in range(space.width) if c not in taken]),
            ("hat_column", [g.column for g, _ in hats]),
        ):
            self.register_buffer(name, torch.tensor(values, dtype=torch.long))
        for name, numbers in (
            ("hat_lower", [g.lower for g, _ in hats]),
            ("hat_step", [g.step for g, _ in hats]),
            ("hat_level", [float(k) for _, k in hats]),
            ("hat_last", [g.size - 1.0 for g, _ in hats]),
        ):
            self.register_buffer(name, torch.tensor(numbers)[None, :])
        self.log_cell = math.fsum(math.log(g.step) for g in grids)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return blocks (..., n, D) and the remaining numbers (..., n, r) of rows (..., n, d)."""
        place = (_columns(x, self.hat_column) - self.hat_lower) / self.hat_step
        place = torch.minimum(place.clamp(min=0.0), self.hat_last)
        hats = (1 - (place - self.hat_level).abs()).clamp(min=0.0)
        return torch.cat((_columns(x, self.one_hot), hats), -1), _columns(x, self.rest)

    def assemble(self, blocks: Tensor, rest: Tensor) -> Tensor:
        """Return rows (n, d) from one-hot blocks (n, D) and numbers (n, r)."""
        x = blocks.new_zeros(len(blocks), self.width)
        count = len(self.one_hot)
        x[:, self.one_hot] = blocks[:, :count]
        values = blocks[:, count:] * (self.hat_lower + self.hat_step * self.hat_level)
        x.index_add_(1, self.hat_column, values)
        x[:, self.rest] = rest
        return x


def _columns(x: Tensor, index: Tensor) -> Tensor:
    """Return x[..., index]; without gradients in a sixth of the time."""
    return x[..., index] if x.requires_grad else x.index_select(-1, index)
