"""The sets of continuous rows that stand for one discrete row."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from cel.errors import DataError
from cel.preprocessing.blocks import Blocks
from cel.space import Feature, FeatureSpace

__all__ = ["Cells", "check_rows"]


class Cells(nn.Module):
    """Grid columns and one-hot blocks of a space, and the maps between x and v.

    Args:
        space: encoded feature space. Categories in one column count as a grid of width 1.
        coarser_than: grids with a smaller step are not discrete here.
    """

    grid: Tensor
    step: Tensor
    anchor: Tensor
    block: Tensor
    grid_code: Tensor
    block_code: Tensor

    def __init__(self, space: FeatureSpace, coarser_than: float = 0.0) -> None:
        super().__init__()
        grids = [(f, _step(f)) for f in space if not f.one_hot and _step(f) > coarser_than]
        blocks = [f.columns for f in space.one_hot_features]
        self.n_grid, self.n_block = len(grids), sum(len(b) for b in blocks)
        self.log_volume = math.fsum(math.log(h) for _, h in grids)
        self.log_ways = math.fsum(math.log(len(b)) for b in blocks)
        columns = [f.columns[0] for f, _ in grids]
        self.register_buffer("grid", torch.tensor(columns, dtype=torch.long))
        self.register_buffer("step", _row([h for _, h in grids]))
        self.register_buffer("anchor", _row([f.anchor for f, _ in grids]))
        flat = [c for b in blocks for c in b]
        self.register_buffer("block", torch.tensor(flat, dtype=torch.long))
        self.blocks = Blocks([len(b) for b in blocks])
        codes = torch.arange(1, 1 + len(grids) + len(blocks)) * 40503 % 65521  # spread out
        self.register_buffer("grid_code", codes[: len(grids)])
        self.register_buffer("block_code", codes[len(grids) :])

    def to_cell(self, x: Tensor, u: Tensor) -> Tensor:
        """Move u in (0, 1) (..., g) into the cells of the grid columns of x: x + h (u - 1/2)."""
        centre, step = x[..., self.grid], self.step.to(x.dtype)
        # rounding must not put v on the edge between two cells
        room = 4 * torch.finfo(x.dtype).eps * (centre.abs() + step)
        half = (0.5 * step - room).clamp(min=0.0)
        shift = step * (u - 0.5)
        return centre + torch.maximum(torch.minimum(shift, half), -half)

    def to_argmax(self, x: Tensor, u: Tensor) -> Tensor:
        """Exchange the largest of exchangeable numbers u (..., b) with that of the category.

        If the k numbers of a block have density f, the result has density k f on the cell.
        """
        if not self.n_block:
            return u
        active = self.blocks.split(x[..., self.block], fill=0.0) > 0.5
        values = self.blocks.split(u, fill=-math.inf)
        top, where = values.max(-1, keepdim=True)
        own = torch.where(active, values, 0.0).sum(-1, keepdim=True)
        swapped = values.scatter(-1, where, own)
        return self.blocks.flat(torch.where(active, top, swapped))

    def join(self, x: Tensor, grid: Tensor, block: Tensor) -> Tensor:
        """Return `x` with other grid and block columns."""
        v = x.clone()
        v[..., self.grid] = grid
        v[..., self.block] = block
        return v

    def quantize(self, v: Tensor) -> Tensor:
        """Return the discrete row in whose cell `v` lies."""
        anchor, step = self.anchor.double(), self.step.double()
        # decimals: what was zero must not come back as 1e-17
        grid = torch.round(anchor + step * self._level(v), decimals=15).to(v.dtype)
        if not self.n_block:
            return self.join(v, grid, v[..., self.block])
        winner = self._winner(v)
        table = v.new_zeros(*winner.shape[:-1], self.blocks.table.shape[-1])
        return self.join(v, grid, self.blocks.flat(table.scatter(-1, winner, 1.0)))

    def key(self, v: Tensor) -> Tensor:
        """Return a whole number (...) for each row that depends on its discrete part only."""
        total = (self._level(v).long() * self.grid_code).sum(-1)
        if self.n_block:
            total = total + (self._winner(v)[..., 0] * self.block_code).sum(-1)
        return total.abs()

    def _level(self, v: Tensor) -> Tensor:
        anchor, step = self.anchor.double(), self.step.double()
        return torch.round((v[..., self.grid].double() - anchor) / step)

    def _winner(self, v: Tensor) -> Tensor:
        values = self.blocks.split(v[..., self.block], fill=-math.inf)
        return values.argmax(-1, keepdim=True)


def _step(feature: Feature) -> float:
    """Return the grid width of a feature in one column, 0 if it has none."""
    return 1.0 if feature.is_categorical else float(feature.step or 0.0)


def _row(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[None, :]


def check_rows(x: Tensor, space: FeatureSpace) -> None:
    """Raise unless `x` has the columns of `space`."""
    if x.shape[-1] != space.width:
        raise DataError(f"expected rows of {space.width} columns, got shape {tuple(x.shape)}")
