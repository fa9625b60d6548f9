"""Search outwards: sample one shell after another until a sample is accepted."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cel.search.budget import Budget
from cel.search.gradient import Found
from cel.search.streams import RowStreams

__all__ = ["grow_shells"]

Judge = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(points (a, s, q), row numbers (a,)) -> (points as seen (a, s, d), costs (a, s); inf: no)."""

CHUNK_VALUES = 2**17  # numbers drawn at a time: small enough for the cache
_DRAWS = 3  # draws of a stream used by one shell: two for a normal, one for the radius


def grow_shells(
    center: Tensor,
    judge: Judge,
    *,
    like: Tensor,
    rng: RowStreams,
    step: float,
    samples: int,
    limit: Tensor,
    p: float = 2.0,
    budget: Budget | None = None,
) -> Found:
    """Sample shells `l < |point - center|_p <= l + step` for l = 0, step, 2 step, ...

    A row ends at its first shell with an accepted sample and takes the cheapest one of that shell
    (Laugel et al., 2018; Pawelczyk et al., 2020), or ends empty-handed beyond its limit.

    Args:
        center: (n, q) where each search starts.
        judge: prices samples.
        like: (n, d) rows of the shape and dtype of the answer.
        rng: one stream per row.
        step: thickness of a shell.
        samples: points per shell and row.
        limit: (n,) radius at which a row gives up.
        p: norm of the radius.
        budget: ends the search early.
    """
    best = Found.nothing(like)
    rows = torch.arange(len(center), device=center.device)
    shell = 0
    while True:
        rows = rows[~best.ok[rows] & (limit[rows] > shell * step)]
        if not len(rows) or (budget is not None and budget.expired):
            return best
        size = max(1, CHUNK_VALUES // (samples * max(center.shape[1], like.shape[1])))
        for part in torch.split(rows, size):
            stream = RowStreams(rng.keys[part], rng.draw + _DRAWS * shell)
            way = stream.normal(samples, center.shape[1])
            way = way / way.norm(p=p, dim=-1, keepdim=True).clamp(min=1e-12)
            radius = (shell + stream.uniform(samples)) * step
            seen, cost = judge(center[part, None, :] + radius[..., None] * way, part)
            price, which = cost.min(1)
            hit = price.isfinite()
            best.x[part[hit]] = seen[hit, which[hit]]
            best.cost[part[hit]], best.ok[part[hit]] = price[hit], True
        shell += 1
