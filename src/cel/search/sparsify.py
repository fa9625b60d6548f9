"""Give back changes that are not needed, one feature at a time for all rows at once."""

from __future__ import annotations

import torch
from torch import Tensor

from cel.search.boundary import Test
from cel.space.layout import by_feature

__all__ = ["revert_features"]


def revert_features(
    x: Tensor,
    origin: Tensor,
    ok: Tensor,
    accept: Test,
    owner: Tensor,
    *,
    order: Tensor | None = None,
) -> Tensor:
    """Set features back to the origin while the row stays accepted.

    Args:
        x: (n, d) accepted points.
        origin: (n, d).
        ok: (n,) rows to work on.
        accept: acceptance test.
        owner: (d,) feature of each column; a one-hot block goes back as a whole.
        order: (n, p) features of each row in the order of trial; by default the smallest change
            first, so that the changes that matter are kept.
    """
    rows = ok.nonzero()[:, 0]
    out = x.clone()
    if not len(rows):
        return out
    count = int(owner.max()) + 1
    change = by_feature((out[rows] - origin[rows]).abs(), owner, count)
    sequence = change.argsort(dim=1, stable=True) if order is None else order[rows]
    for rank in range(count):
        feature = sequence[:, rank]
        columns = owner[None, :] == feature[:, None]
        moved = change.gather(1, feature[:, None])[:, 0] > 0
        if not bool(moved.any()):
            continue
        trial = torch.where(columns, origin[rows], out[rows])
        seen, good = accept(trial[moved], rows[moved])
        out[rows[moved]] = torch.where(good[:, None], seen, out[rows[moved]])
    return out
