"""Training rows as starting points, projected into the cells that a row may go to."""

from __future__ import annotations

import numpy as np

from cel.cf_methods.ensembles.cell_table import CellTable
from cel.search.leaf_bits import LeafBits
from cel.search.profiles import Demand, sums_at

__all__ = ["donor_points"]

_CHUNK = 2**22


def donor_points(
    bits: LeafBits, demand: Demand, table: CellTable, pool: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the cheapest projected pool rows that meet the demand of each row.

    A pool row lends every cell that the row may go to; the others stay at home.

    Args:
        bits: bits of the cells.
        demand: what the rows want.
        table: their cells.
        pool: (m, A) cells of training rows.
        count: most points per row.

    Returns:
        (points (R, A), the rows (R,) that they are for).
    """
    points, their = [], []
    size = max(1, _CHUNK // max(pool.size, 1))
    for i in range(0, len(table), size):
        rows = np.arange(i, min(i + size, len(table)))
        price = table.price[rows][:, pool]  # (r, m, A)
        cells = np.where(np.isfinite(price), pool, table.home[rows][:, None])
        cost = np.where(np.isfinite(price), price, 0.0).sum(-1)
        flat, owner = cells.reshape(-1, pool.shape[1]), np.repeat(rows, len(pool))
        good = demand.margin(sums_at(bits, demand.tables, flat), owner) >= 0
        if table.legal:
            good &= table.legal.holds(flat, table.number[owner], owner)
        cost = np.where(good.reshape(cost.shape), cost, np.inf)
        best = np.argsort(cost, axis=1, kind="stable")[:, :count]
        row, place = np.nonzero(np.isfinite(np.take_along_axis(cost, best, 1)))
        points.append(cells[row, best[row, place]])
        their.append(rows[row])
    if not points:
        return np.zeros((0, pool.shape[1]), dtype=np.int64), np.zeros(0, dtype=np.int64)
    return np.concatenate(points), np.concatenate(their)
