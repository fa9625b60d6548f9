"""Where a row carries no information, and the regions in which information is added or removed."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from cel.space import FeatureSpace
from cel.space.region import Region

__all__ = ["adding", "no_information", "removing"]


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


def adding(region: Region, b: Tensor) -> Region:
    """Return the part of a region that lies away from b (n, d).

    Numbers move away from b, those at b either way; only the category of b may be left.
    """
    x, numeric = region.origin, region.layout.numeric
    lower = torch.where(numeric & (x > b), x, region.lower)
    upper = torch.where(numeric & (x < b), x, region.upper)
    neutral = _block_any(region, (x > 0.5) & (b > 0.5))
    reachable = torch.where(neutral, region.reachable, region.reachable & (x > 0.5))
    return replace(region, lower=lower, upper=upper, reachable=reachable)


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
    hits = torch.zeros(len(columns), len(region.space), device=columns.device)
    hits.index_add_(1, owner, columns.to(hits.dtype))
    return (hits > 0)[:, owner]
