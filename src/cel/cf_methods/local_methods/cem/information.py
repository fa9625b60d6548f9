"""Where a row carries no information, and the regions in which information is added or removed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.query import Query
from cel.errors import DataError
from cel.search.gradient import SnapTest
from cel.search.steppers import Prox
from cel.space import FeatureSpace
from cel.space.layout import by_feature
from cel.space.region import Region

__all__ = [
    "adding",
    "farther",
    "kept_away",
    "no_information",
    "removing",
    "values_without_information",
]


def no_information(x: Tensor, space: FeatureSpace) -> Tensor:
    """Return (d,) the median of each number and the most frequent category of each block.

    >>> no_information(torch.tensor([[1.0], [2.0], [9.0]]), FeatureSpace.continuous(1))
    tensor([2.])
    """
    b = x.median(0).values
    for feature in space.one_hot_features:
        columns = list(feature.columns)
        b[columns] = torch.nn.functional.one_hot(x[:, columns].sum(0).argmax(), len(columns)).to(x)
    return b


def values_without_information(given: Any, learned: Tensor | None, query: Query) -> Tensor:
    """Return (n, d) the values that were given, or else those learned from training rows."""
    if given is None and learned is not None:
        return learned.to(query.x).expand_as(query.x)
    b = torch.as_tensor(np.asarray(given, dtype=np.float32)).to(query.x)
    if b.shape != query.x.shape[1:]:
        raise DataError(
            f"no_info has shape {tuple(b.shape)}, rows have {query.x.shape[1]} columns"
        )
    return b.expand_as(query.x)


def adding(region: Region, b: Tensor, *, both: bool = False) -> Region:
    """Return the part of a region that lies away from b (n, d).

    Numbers move away from b, those at b either way; only the category of b may be left.

    Args:
        region: where rows may go at all.
        b: values without information.
        both: leave numbers as they are, for a set that lies on both sides of b.
    """
    x, numeric = region.origin, region.layout.numeric & (not both)
    lower = torch.where(numeric & (x > b), x, region.lower)
    upper = torch.where(numeric & (x < b), x, region.upper)
    neutral = _block_any(region, (x > 0.5) & (b > 0.5))
    reachable = torch.where(neutral, region.reachable, region.reachable & (x > 0.5))
    return replace(region, lower=lower, upper=upper, reachable=reachable)


def _nearer(y: Tensor, query: Query, b: Tensor, rows: Tensor) -> Tensor:
    """Return (a, d) bool: numbers of y that moved and are not farther from b than the row is."""
    x, base = query.x[rows], b[rows]
    gone = (y != x) & query.region.layout.numeric
    return gone & ((y - base).abs() <= (x - base).abs())


def kept_away(prox: Prox | None, query: Query, b: Tensor) -> Prox:
    """Return a proximal map that gives back numbers which came nearer to b (n, d)."""

    def kept(x: Tensor, step: Tensor, rows: Tensor) -> Tensor:
        y = x if prox is None else prox(x, step, rows)
        return torch.where(_nearer(y, query, b, rows), query.x[rows], y)

    return kept


def farther(accept: SnapTest, query: Query, b: Tensor) -> SnapTest:
    """Return a test that also asks every changed number to be farther from b (n, d)."""

    def judge(seen: Tensor, rows: Tensor) -> Tensor:
        return accept.judge(seen, rows).bool() & ~_nearer(seen, query, b, rows).any(1)

    return replace(accept, judge=judge)


def removing(region: Region, b: Tensor) -> Region:
    """Return the part of a region between the rows and b (n, d)."""
    x, numeric = region.origin, region.layout.numeric
    low = torch.maximum(region.lower, torch.minimum(x, b))
    high = torch.minimum(region.upper, torch.maximum(x, b))
    reachable = region.reachable & ((x > 0.5) | (b > 0.5))
    return replace(
        region,
        lower=torch.where(numeric, torch.minimum(low, x), region.lower),
        upper=torch.where(numeric, torch.maximum(high, x), region.upper),
        reachable=reachable,
    )


def _block_any(region: Region, columns: Tensor) -> Tensor:
    """Spread a flag (n, d) from one column of a feature to all its columns."""
    owner = region.layout.owner
    return (by_feature(columns, owner, len(region.space)) > 0)[:, owner]
