"""From cells back to rows that the real model accepts."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.ensembles.cell_table import CellTable
from cel.cf_methods.query import Query
from cel.search.coordinate import Incumbents

__all__ = ["verified"]


def verified(query: Query, table: CellTable, found: Incumbents, rows: np.ndarray) -> Tensor:
    """Return points (m, d) that the real model accepts, NaN elsewhere.

    Args:
        query: what is asked.
        table: the cells of the rows.
        found: their points.
        rows: (m,) their numbers in the query.
    """
    out = torch.full_like(query.x[torch.as_tensor(rows)], torch.nan)
    have = np.flatnonzero(np.isfinite(found.cost))
    if len(have):
        points = table.points(found.cells[have], have)
        seen, ok = query.accept(points, torch.as_tensor(rows[have]))
        out[torch.as_tensor(have)[ok]] = seen[ok]
    return out
