"""Search outwards: sample one shell after another until a sample is accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from cel.search.budget import Budget
from cel.search.gradient import Found
from cel.search.streams import RowStreams

__all__ = ["Radial", "grow_shells", "shared_ways", "shell_points"]

Radial = Literal["linear", "volume"]

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
    start: float = 0.0,
    growth: float = 1.0,
    unit: Tensor | None = None,
    free: Tensor | None = None,
    radial: Radial = "linear",
    budget: Budget | None = None,
    chunk: int = CHUNK_VALUES,
    ways: Tensor | None = None,
    ahead: int = 1,
) -> Found:
    """Sample shells `l < |point - center|_p <= l + step` for l = 0, step, 2 step, ...

    A row ends at its first shell with an accepted sample and takes the cheapest one of that shell
    (Laugel et al., 2018; Pawelczyk et al., 2020), or ends empty-handed beyond its limit.

    Args:
        center: (n, q) where each search starts.
        judge: prices samples.
        like: (n, d) rows of the shape and dtype of the answer.
        rng: one stream per row.
        step: thickness of the first shell.
        samples: points per shell and row.
        limit: (n,) radius at which a row gives up.
        p: norm of the radius.
        start: inner radius of the first shell.
        growth: how many times as thick each shell is as the one before.
        unit: (n,) what `start` and `step` are multiples of; 1 by default.
        free: (n, q) bool, coordinates that move; all by default.
        radial: "linear" for radii that are uniform in the shell, "volume" for points that are
            (in many dimensions nearly all of them lie at its outer edge).
        budget: ends the search early.
        chunk: numbers drawn at a time.
        ways: (m, q + 1) `shared_ways` from which every row takes, for every shell, a stretch that
            its stream chooses; by default each row has directions of its own.
        ahead: rows that are few enough are judged in several shells at a time, up to so many
            together, never more than a quarter of the shells before; the answers are the same
            if `judge` keeps nothing in mind. For shells of one thickness.
    """
    best = Found.nothing(like)
    rows = torch.arange(len(center), device=center.device)
    size = torch.ones_like(limit) if unit is None else unit
    plain = not start and growth == 1.0 and radial == "linear"
    count = max(1, chunk // (samples * max(center.shape[1], like.shape[1])))

    def points(part: Tensor, shell: int, inner: float) -> Tensor:
        stream = RowStreams(rng.keys[part], rng.draw + _DRAWS * shell)
        if ways is None:
            way, u, dims = _directions(stream, samples, center[part], free, part, p)
        else:
            way, u, dims = _stretch(stream, samples, ways)
        outer = inner + step * growth**shell
        radius = (shell + u) * step if plain else _radii(u, inner, outer, dims, radial)
        if unit is not None:
            radius = radius * unit[part, None]
        return center[part, None, :] + radius[..., None] * way

    inner, shell = start, 0
    while True:
        rows = rows[~best.ok[rows] & (limit[rows] > inner * size[rows])]
        if not len(rows) or (budget is not None and budget.expired):
            return best
        turns = min(shell // 4, min(ahead, count) // len(rows)) if plain else 1
        more = [start + (shell + turn) * step for turn in range(1, turns)]
        ends = [inner, *(e for e in more if bool((limit[rows] > e * size[rows]).all()))]
        for part in rows.chunk(-(-len(rows) // count)):
            if len(ends) > 1:
                many = torch.cat([points(part, shell + i, end) for i, end in enumerate(ends)])
                seen, cost = _first_shells(judge, many, part)
            else:
                seen, cost = judge(points(part, shell, inner), part)
            price, which = cost.min(1)
            hit = price.isfinite()
            best.x[part[hit]] = seen[hit, which[hit]]
            best.cost[part[hit]], best.ok[part[hit]] = price[hit], True
        turns = len(ends)
        inner = inner + step * growth**shell if growth != 1.0 else start + (shell + turns) * step
        shell += turns


def _first_shells(judge: Judge, points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Judge several shells of some rows (a,), return what each row has in the first with a hit.

    Args:
        judge: prices samples.
        points: (t a, s, q) the shells one after the other.
        rows: (a,) row numbers.
    """
    turns = len(points) // len(rows)
    seen, cost = judge(points, rows.repeat(turns))
    cost = cost.reshape(turns, len(rows), -1)
    first = cost.isfinite().any(-1).to(torch.uint8).argmax(0)
    here = torch.arange(len(rows), device=rows.device)
    return seen.reshape(turns, len(rows), *seen.shape[1:])[first, here], cost[first, here]


def shared_ways(count: int, like: Tensor, p: float) -> Tensor:
    """Return (count, q + 1): directions of length 1 in the p-norm, and uniform numbers.

    They are the same for all searches in q dimensions.

    >>> ways = shared_ways(5, torch.zeros(1, 3), 2.0)
    >>> ways.shape, [round(v, 4) for v in ways[:, :3].norm(dim=1).tolist()]
    (torch.Size([5, 4]), [1.0, 1.0, 1.0, 1.0, 1.0])
    """
    stream = RowStreams(torch.zeros(1, dtype=torch.long, device=like.device))
    way = stream.normal(count, like.shape[1])[0]
    way = way / way.norm(p=p, dim=1, keepdim=True).clamp(min=1e-12)
    return torch.cat([way, stream.uniform(count)[0][:, None]], 1).to(like)


def _stretch(rng: RowStreams, samples: int, ways: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `_directions` does, as a stretch of shared ways for each row."""
    places, width = len(ways) - samples + 1, ways.shape[1]
    stretches = ways.contiguous().as_strided((places, samples * width), (width, 1))
    taken = stretches.index_select(0, rng.integers(places)).reshape(-1, samples, width)
    dims = torch.full_like(taken[:, :1, 0], ways.shape[1] - 1)
    return taken[..., :-1], taken[..., -1], dims


def shell_points(
    center: Tensor,
    rng: RowStreams,
    inner: Tensor | float,
    outer: Tensor | float,
    *,
    samples: int,
    free: Tensor | None = None,
    p: float = 2.0,
    radial: Radial = "linear",
) -> Tensor:
    """Draw points (n, samples, q) with `inner < |point - center|_p <= outer`.

    >>> far = shell_points(torch.zeros(1, 2), RowStreams.of(torch.ones(1, 2), 0), 1, 2, samples=99)
    >>> bool(((far.norm(dim=-1) > 1) & (far.norm(dim=-1) <= 2)).all())
    True
    """
    rows = torch.arange(len(center), device=center.device)
    way, u, dims = _directions(rng, samples, center, free, rows, p)
    return center[:, None, :] + _radii(u, inner, outer, dims, radial)[..., None] * way


def _directions(
    rng: RowStreams, samples: int, center: Tensor, free: Tensor | None, rows: Tensor, p: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return unit vectors (a, s, q), uniform numbers (a, s) and the number of free axes (a, 1)."""
    way = rng.normal(samples, center.shape[1])
    dims = torch.full_like(center[:, :1], center.shape[1])
    if free is not None:
        way = way * free[rows, None, :]
        dims = free[rows].sum(1, keepdim=True).clamp(min=1).to(center.dtype)
    way = way / way.norm(p=p, dim=-1, keepdim=True).clamp(min=1e-12)
    return way, rng.uniform(samples), dims


def _radii(
    u: Tensor, inner: Tensor | float, outer: Tensor | float, dims: Tensor, radial: Radial
) -> Tensor:
    """Turn uniform numbers (a, s) into radii; `inner` and `outer` are numbers or (a,)."""
    low = torch.as_tensor(inner, dtype=u.dtype, device=u.device).reshape(-1, 1)
    high = torch.as_tensor(outer, dtype=u.dtype, device=u.device).reshape(-1, 1)
    if radial == "linear":
        return high - u * (high - low)
    share = (low / high.clamp(min=1e-30)) ** dims  # of the volume, inside the hole
    return high * (1 - u * (1 - share)) ** (1 / dims)
