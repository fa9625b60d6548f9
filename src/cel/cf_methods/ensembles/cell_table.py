"""Prices and values of the cells around each row: the feasible set as tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.ensembles.legal import Legal
from cel.models.trees import TreeView
from cel.space import Feature
from cel.space.region import Region

__all__ = ["CellTable"]


@dataclass(frozen=True, eq=False)
class CellTable:
    """For n rows and C cells: what it costs to go to a cell, and where one arrives.

    The price of a number is `weight * |x' - x| / scale + beta`, that of a category
    `weight + beta`; a row's own cells are free. A cell counts at its nearest value that the row's
    region allows (bounds, direction, grid, categories); without one its price is infinite.

    Attributes:
        view: the trees.
        region: the region of each row.
        home: (n, A) cells of the rows, numbered through.
        price: (n, C).
        number: (n, C) float32, encoded value of the cells of numbers and ranks.
        legal: which moves keep the constraints between features.
    """

    view: TreeView
    region: Region
    home: np.ndarray
    price: np.ndarray
    number: np.ndarray
    legal: Legal

    @classmethod
    def of(cls, view: TreeView, region: Region, scale: np.ndarray, beta: float) -> CellTable:
        """Build the tables; `scale` (d,) are the units of numbers."""
        axes, space = view.axes, view.axes.space
        x = region.origin.detach().cpu().numpy().astype(np.float32)
        home = axes.cells(x)
        price = np.full((len(x), axes.count), np.inf)
        number = np.zeros((len(x), axes.count), dtype=np.float32)
        low, high = region.lower.cpu().numpy(), region.upper.cpu().numpy()
        reachable = region.reachable.cpu().numpy()
        fixed = region.fixed.cpu().numpy()
        tolerance = region.layout.tolerance.cpu().numpy()
        for a, f in enumerate(space):
            part = slice(axes.offset[a], axes.offset[a + 1])
            column = f.columns[0]
            own = home[:, a, None] == np.arange(part.start, part.stop)
            if axes.labels[a]:
                open_ = reachable[:, list(f.columns)] & ~fixed[:, [column]]
                price[:, part] = np.where(open_, f.weight + beta, np.inf)
            else:
                start, stop = _ends(f, axes.edges[a])
                above = np.arange(part.start, part.stop) > home[:, a, None]
                to = np.where(above, start, stop).astype(np.float32)
                slack = tolerance[column] if f.is_discrete else 0.0
                open_ = (start <= stop) & ~fixed[:, [column]]
                open_ = open_ & np.where(
                    above, to <= high[:, [column]] + slack, to >= low[:, [column]] - slack
                )
                far = np.abs(to.astype(np.float64) - x[:, [column]])
                if f.is_discrete:  # snapping takes such a value for the row's own
                    open_ = open_ & (far > tolerance[column])
                far = far / scale[column]
                price[:, part] = np.where(open_, f.weight * far + beta, np.inf)
                number[:, part] = np.where(own | ~np.isfinite(to), x[:, [column]], to)
            price[:, part] = np.where(own, 0.0, price[:, part])
        return cls(view, region, home, price, number, Legal.of(axes, region))

    def __len__(self) -> int:
        return len(self.home)

    @property
    def open_axes(self) -> np.ndarray:
        """(k,) the axes along which some row can move at all."""
        some = np.add.reduceat(np.isfinite(self.price), self.view.axes.offset[:-1], axis=1)
        return np.flatnonzero((some > 1).any(0))

    def select(self, rows: np.ndarray) -> CellTable:
        """Return the tables of some rows; row numbers may repeat."""
        return CellTable(
            self.view, self.region.select(torch.as_tensor(rows)), self.home[rows],
            self.price[rows], self.number[rows], self.legal.select(rows),
        )  # fmt: skip

    def cost(self, cells: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the price of points (R, A) of the given rows, shape (R,)."""
        return np.asarray(self.price[rows[:, None], cells].sum(1))

    def moves(self, cells: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return what each single move adds to the price, shape (R, C); illegal ones are inf."""
        sizes = np.diff(self.view.axes.offset)
        price = self.price[rows]
        now = np.take_along_axis(price, cells, 1)
        added: np.ndarray = price - np.repeat(now, sizes, axis=1)
        if self.legal:
            added[~self.legal.moves(cells, self.number[rows], rows)] = np.inf
        return added

    def points(self, cells: np.ndarray, rows: np.ndarray) -> Tensor:
        """Return the encoded rows (R, d) of points given by their cells."""
        axes = self.view.axes
        at = torch.as_tensor(rows)
        x = self.region.origin[at].clone()
        moved = cells != self.home[rows]
        for a, f in enumerate(axes.space):
            which = np.flatnonzero(moved[:, a])
            if not len(which):
                continue
            place = torch.as_tensor(which, device=x.device)
            if axes.labels[a]:
                block = np.eye(len(f.columns), dtype=np.float32)
                values = block[cells[which, a] - axes.offset[a]]
                x[place[:, None], torch.as_tensor(f.columns)] = torch.as_tensor(values).to(x)
            else:
                values = self.number[rows[which], cells[which, a]]
                x[place, f.columns[0]] = torch.as_tensor(values).to(x)
        return x


def _ends(f: Feature, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and the largest value of each cell (k,), on the grid of the feature."""
    infinite = np.array([np.inf], dtype=np.float32)
    start = np.concatenate([-infinite, np.nextafter(edges, infinite[0])])
    stop = np.concatenate([edges, infinite])
    if not f.step:
        return start, stop
    values = _grid(f, edges)
    first = np.searchsorted(values, start, side="left")
    last = np.searchsorted(values, stop, side="right") - 1
    some = first <= last
    if f.kind == "ordinal" and f.allowed is not None:
        # Each rank has a cell of its own; a rank that may not be reached closes it.
        some &= np.array(f.allowed_mask)[np.clip(first, 0, len(f.categories) - 1)]
    size = len(values) - 1
    return (
        np.where(some, values[np.clip(first, 0, size)], np.inf).astype(np.float32),
        np.where(some, values[np.clip(last, 0, size)], -np.inf).astype(np.float32),
    )


MOST_STEPS = 2**22


def _grid(f: Feature, edges: np.ndarray) -> np.ndarray:
    """Return the values of a grid, written as snapping writes them, from bound to bound."""
    assert f.step is not None
    count = np.array([(f.lower - f.anchor) / f.step, (f.upper - f.anchor) / f.step])
    first, last = int(np.floor(count[0])) - 1, int(np.ceil(count[1])) + 1
    if f.kind == "ordinal":
        first, last = 0, len(f.categories) - 1
    if last - first > MOST_STEPS:  # so fine that only the values next to edges matter
        near = np.rint((edges.astype(np.float64) - f.anchor) / f.step).astype(np.int64)
        steps = np.unique([first, last, *(near[:, None] + np.arange(-2, 3)).ravel()])
    else:
        steps = np.arange(first, last + 1)
    anchor, step = np.float32(f.anchor), np.float32(f.step)
    return np.asarray(anchor + step * steps.astype(np.float32), dtype=np.float32)
