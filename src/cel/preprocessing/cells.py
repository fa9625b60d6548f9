"""The sets of continuous rows that stand for one discrete row."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from cel.space import Feature, FeatureSpace

__all__ = ["Cells"]


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
    table: Tensor
    real: Tensor
    place: Tensor

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
        widest = max((len(b) for b in blocks), default=1)
        start, table, real = 0, [], []
        for b in blocks:
            table.append([start + min(k, len(b) - 1) for k in range(widest)])
            real.append([k < len(b) for k in range(widest)])
            start += len(b)
        shape = (len(blocks), widest)
        flat = [c for b in blocks for c in b]
        self.register_buffer("block", torch.tensor(flat, dtype=torch.long))
        self.register_buffer("table", torch.tensor(table, dtype=torch.long).reshape(shape))
        self.register_buffer("real", torch.tensor(real, dtype=torch.bool).reshape(shape))
        self.register_buffer("place", self.real.flatten().nonzero()[:, 0])

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
        values = self.split(u)
        active = (self.split(x[..., self.block]) > 0.5) & self.real
        values = torch.where(self.real, values, -math.inf)
        top, where = values.max(-1, keepdim=True)
        own = torch.where(active, values, 0.0).sum(-1, keepdim=True)
        swapped = values.scatter(-1, where, own)
        return self.flat(torch.where(active, top, swapped))

    def split(self, columns: Tensor) -> Tensor:
        """Return block columns (..., b) as (..., blocks, widest); places beyond a block repeat."""
        return columns[..., self.table]

    def flat(self, values: Tensor) -> Tensor:
        """Return (..., blocks, widest) as block columns (..., b)."""
        return values.flatten(-2)[..., self.place]

    def join(self, x: Tensor, grid: Tensor, block: Tensor) -> Tensor:
        """Return `x` with other grid and block columns."""
        v = x.clone()
        v[..., self.grid] = grid
        v[..., self.block] = block
        return v

    def quantize(self, v: Tensor) -> Tensor:
        """Return the discrete row in whose cell `v` lies."""
        wide = v[..., self.grid].double()
        index = torch.round((wide - self.anchor.double()) / self.step.double())
        grid = (self.anchor.double() + self.step.double() * index).to(v.dtype)
        if not self.n_block:
            return self.join(v, grid, v[..., self.block])
        values = torch.where(self.real, self.split(v[..., self.block]), -math.inf)
        winner = values.argmax(-1, keepdim=True)
        active = torch.zeros_like(values).scatter(-1, winner, 1.0)
        return self.join(v, grid, self.flat(active))


def _step(feature: Feature) -> float:
    """Return the grid width of a feature in one column, 0 if it has none."""
    return 1.0 if feature.is_categorical else float(feature.step or 0.0)


def _row(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[None, :]
