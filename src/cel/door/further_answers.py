"""Further answers of rows: other columns first, then the cheapest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from cel.cf_methods.query import Query
from cel.space.layout import by_feature

__all__ = ["fill_sets"]

NEAR_TO_FIRST = 1e-6  # of the cost: what counts as dearer than the first answer


def fill_sets(query: Query, sets: Tensor, points: Tensor, at: Tensor, cost: Any) -> None:
    """Fill sets (n, k, d) from points (a, d) of rows (a,): new columns first, cheapest first.

    The first answer stays; what costs less, or the same again, is no further answer.
    """
    k = sets.shape[1]
    have = (~sets[:, 0].isnan().any(1)).nonzero()[:, 0]
    first = torch.full_like(sets[:, 0, 0], -torch.inf)
    first[have] = cost(sets[have, 0], have)
    price = cost(points, at)
    dearer = price > first[at] * (1 + NEAR_TO_FIRST)
    points, at = torch.cat([sets[have, 0], points[dearer]]), torch.cat([have, at[dearer]])
    price = torch.cat([first[have], price[dearer]])
    region = query.region
    moved = by_feature((points - query.x[at]).abs(), region.layout.owner, len(region.space))
    table = pd.DataFrame({"row": at.cpu().numpy(), "price": price.cpu().numpy()})
    table["point"] = np.unique(np.round(points.cpu().numpy(), 5), axis=0, return_inverse=True)[1]
    table["kind"] = np.unique((moved > 0).numpy(), axis=0, return_inverse=True)[1]
    table = table.sort_values(["row", "price"], kind="stable").drop_duplicates(["row", "point"])
    table["again"] = table.duplicated(["row", "kind"])
    table = table.sort_values(["row", "again", "price"], kind="stable")
    table = table[table.groupby("row").cumcount() < k].sort_values(["row", "price"], kind="stable")
    place = torch.as_tensor(table.groupby("row").cumcount().to_numpy().copy())
    sets[torch.as_tensor(table["row"].to_numpy().copy()), place] = points[
        torch.as_tensor(table.index.to_numpy().copy())
    ]
