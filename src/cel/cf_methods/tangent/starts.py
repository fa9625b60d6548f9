"""Other points to start from, for rows whose own neighbourhood leads nowhere."""

from __future__ import annotations

import torch
from torch import Tensor

from cel.cf_methods.query import Query, TrainRows
from cel.protocols import Task
from cel.search import nearest

__all__ = ["other_starts"]


def other_starts(query: Query, train: TrainRows | None, count: int) -> Tensor:
    """Return (n, count, d) points that may lie on the wanted side.

    Training rows with the wanted outcome, nearest first; where there are too few, points drawn
    from the region.
    """
    region, n = query.region, len(query)
    if not n or count < 1:
        return query.x[:, None, :].expand(n, max(count, 0), -1)
    low = torch.where(region.lower.isfinite(), region.lower, query.x - 1)
    high = torch.where(region.upper.isfinite(), region.upper, query.x + 1)
    u = query.rng.uniform(count, query.x.shape[1]).to(query.x)
    starts = low[:, None] + u * (high - low)[:, None]
    if train is None or not len(train.x):
        return starts
    pool = train.x.to(query.x)
    if query.model.task is Task.REGRESSION:
        _, index = nearest(query.target, train.y.to(query.x), count)
        starts[:, : index.shape[1]] = pool[index]
        return starts
    for position in torch.unique(query.target).tolist():
        rows = (query.target == position).nonzero()[:, 0]
        peers = pool[train.y.to(query.x.device) == position]
        if len(peers):
            _, index = nearest(query.x[rows], peers, count)
            starts[rows, : index.shape[1]] = peers[index]
    return starts
