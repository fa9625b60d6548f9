"""Pairs of rows and counterfactual neighbours, under drawn masks and norms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cel.cf_methods.query import MARGIN, TrainRows
from cel.cf_methods.view import ModelView
from cel.search import RowStreams
from cel.search.streams import row_keys
from cel.space import FeatureSpace
from cel.space.region import Region

__all__ = ["NeighbourPairs", "Wishes", "column_weights", "draw_pairs", "norm_distance"]

FROZEN = 0.3  # chance of a feature to be frozen, in every other wish
VALUES = 2**18  # distances of one block: they stay in the cache
POOL = 4_000  # rows of a class that are looked at
QUICK: dict[float, Callable[[Tensor], Tensor]] = {
    0.5: torch.sqrt, 1.0: torch.abs, 2.0: torch.square,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Wishes:
    """What R counterfactuals are asked for.

    Attributes:
        x: (R, d) rows.
        target: (R,) wanted classes.
        region: where each row may go, with features frozen.
        norm: (R,) exponent of the distance.
    """

    x: Tensor
    target: Tensor
    region: Region
    norm: Tensor

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True, kw_only=True, eq=False)
class NeighbourPairs:
    """One neighbour for each wish; wishes repeat, and those without any are left out.

    Attributes:
        wishes: P wishes.
        goal: (P, d) rows of the wanted class, placed in the region of their wish.
    """

    wishes: Wishes
    goal: Tensor


def column_weights(space: FeatureSpace, like: Tensor) -> Tensor:
    """Return (d,) weights: 1 for numbers, a half for categories, of which two columns change."""
    out = torch.full_like(like[0], 0.5)
    out[torch.as_tensor(space.numeric_columns, device=like.device)] = 1.0
    return out


def norm_distance(delta: Tensor, norm: Tensor, weight: Tensor) -> Tensor:
    """Return `(sum_j w_j |delta_j|^p)^(1/p)` over the last axis.

    Args:
        delta: (R, ..., d) differences.
        norm: (R,) exponents p.
        weight: weights w, broadcast against `delta`.

    >>> norm_distance(torch.tensor([[3.0, 4.0]]), torch.tensor([2.0]), torch.ones(2))
    tensor([5.])
    """
    p = norm.reshape(-1, *(1,) * (delta.ndim - 1))
    return (_raised(delta.abs(), p) * weight).sum(-1) ** (1 / p[..., 0])


def _raised(size: Tensor, p: Tensor) -> Tensor:
    """Return sizes to the power of p; powers that are the same for all, and simple, are quick."""
    first = float(p.flatten()[0]) if p.numel() else 1.0
    if first not in QUICK or not bool((p == first).all()):
        return size**p
    return QUICK[first](size)


def draw_pairs(
    train: TrainRows,
    space: FeatureSpace,
    model: ModelView,
    *,
    count: int,
    neighbours: int,
    draws: int,
    confidence: float,
    norms: tuple[float, ...],
    seed: int,
) -> NeighbourPairs:
    """Draw pairs (row, counterfactual neighbour) from training rows.

    Every row that is not in a class wishes for it, under a norm that is drawn, with no or with
    some features frozen besides those that never change. Of its nearest rows of the class, placed
    inside its region, those that keep the class are its neighbours; `draws` of them are drawn.

    Args:
        train: training rows with the model's predictions.
        space: their features.
        model: labels what is placed.
        count: pairs, about.
        neighbours: nearest rows that count.
        draws: neighbours drawn for each wish.
        confidence: least probability of the class that a row of the pool has.
        norms: exponents to draw from.
        seed: of all draws; the order of the training rows does not matter.
    """
    order = row_keys(train.x, seed).argsort(stable=True)
    x, y = train.x[order], train.y[order]
    parts = []
    classes = range(model.n_outputs)
    for label in classes:
        pool = _pool(x[y == label], label, model, confidence)
        rows = x[y != label]
        if not len(pool) or not len(rows):
            continue
        wanted = max(1, count // draws // len(classes))
        wishes = _wishes(rows, label, wanted, space, norms, seed)
        parts.append(_placed(wishes, pool, model, neighbours, draws, seed))
    return _join(parts, space, x)


def _pool(x: Tensor, label: int, model: ModelView, confidence: float) -> Tensor:
    """Return the rows of a class that the model is sure of, or all of them if of none."""
    if not len(x):
        return x
    sure = torch.softmax(model.scores(x), 1)[:, label] >= confidence
    return (x[sure] if bool(sure.any()) else x)[:POOL]


def _wishes(
    rows: Tensor, label: int, count: int, space: FeatureSpace, norms: tuple[float, ...], seed: int
) -> Wishes:
    """Go through the rows as often as needed; every pass draws anew for each row."""
    passes = -(-count // len(rows))
    rng = RowStreams.of(rows, seed)
    which, frozen = [], []
    for _ in range(passes):
        which.append(rng.integers(len(norms)))
        some = rng.uniform(len(space)) < FROZEN
        frozen.append(some & (rng.uniform(1) < 0.5))
    x = rows.repeat(passes, 1)[:count]
    region = Region.around(space, x).freeze(torch.cat(frozen)[:count])
    return Wishes(
        x=x,
        target=torch.full((len(x),), label, dtype=torch.long, device=x.device),
        region=region,
        norm=torch.tensor(norms).to(x)[torch.cat(which)[:count]],
    )


def _placed(
    wishes: Wishes, pool: Tensor, model: ModelView, neighbours: int, draws: int, seed: int
) -> tuple[Wishes, Tensor]:
    """Return wishes that have neighbours, each `draws` times, and what was drawn for them."""
    d, near = pool.shape[1], min(2 * neighbours, len(pool))
    weight = torch.where(wishes.region.fixed, 0.0, column_weights(wishes.region.space, pool))
    size = max(1, VALUES // len(pool))
    numeric = torch.as_tensor(wishes.region.space.numeric_columns, device=pool.device)
    goals, kept = [], []
    order = wishes.norm.argsort(stable=True)  # one exponent after the other
    for part in torch.split(order, size):
        away = _powers(wishes.x[part], pool, wishes.norm[part], weight[part], numeric)
        index = away.topk(near, dim=1, largest=False, sorted=True).indices
        row = part.repeat_interleave(near)
        place = wishes.region.select(row).snap(pool[index].flatten(0, 1))
        ok = model.margin(place, wishes.target[row]) >= MARGIN
        goals.append(place.reshape(len(part), near, d))
        kept.append(ok.reshape(len(part), near))
    back = order.argsort()
    goal, ok = torch.cat(goals)[back], torch.cat(kept)[back]
    # Accepted ones first, nearest first; then one of the first `neighbours` of them is drawn.
    first = (~ok).to(torch.int8).argsort(dim=1, stable=True)
    have = ok.sum(1).clamp(max=neighbours)
    streams = RowStreams.of(torch.cat([wishes.x, wishes.norm[:, None]], 1), seed + 1)
    drawn = (streams.uniform(draws) * have[:, None]).long().clamp(min=0)
    chosen = first.gather(1, torch.minimum(drawn, (have - 1).clamp(min=0)[:, None]))
    picked = goal.gather(1, chosen[..., None].expand(-1, -1, d))
    rows = (have > 0).nonzero()[:, 0].repeat_interleave(draws)
    return _select(wishes, rows), picked[have > 0].flatten(0, 1)


def _powers(x: Tensor, pool: Tensor, norm: Tensor, weight: Tensor, numeric: Tensor) -> Tensor:
    """Return the p-th powers (a, m) of the distances between rows (a, d) and a pool (m, d).

    Categories are zeros and ones, and |0 - 1|^p is 1 for every p: products count them. Numbers
    are taken one column after the other.

    Args:
        x: rows.
        pool: the pool.
        norm: (a,) exponents p.
        weight: (a, d) weights of the columns.
        numeric: columns of numbers.
    """
    named = torch.ones_like(weight[0], dtype=torch.bool).index_fill_(0, numeric, value=False)
    w, of_pool = weight[:, named], pool[:, named]
    wx = w * x[:, named]
    out = torch.addmm(wx.sum(1, keepdim=True), w - 2 * wx, of_pool.T)
    p = norm[:, None]
    for j in numeric.tolist():
        gap = (pool[None, :, j] - x[:, j : j + 1]).abs_()
        out.addcmul_(_raised(gap, p), weight[:, j : j + 1])
    return out


def _select(wishes: Wishes, rows: Tensor) -> Wishes:
    return Wishes(
        x=wishes.x[rows],
        target=wishes.target[rows],
        region=wishes.region.select(rows),
        norm=wishes.norm[rows],
    )


def _join(parts: list[tuple[Wishes, Tensor]], space: FeatureSpace, like: Tensor) -> NeighbourPairs:
    if not parts:
        none = like[:0]
        empty = Region.around(space, none)
        wishes = Wishes(
            x=none, target=torch.zeros(0, dtype=torch.long), region=empty, norm=none[:, 0]
        )
        return NeighbourPairs(wishes=wishes, goal=none)
    wished = [w for w, _ in parts]
    regions = [w.region for w in wished]
    region = replace(
        regions[0],
        origin=torch.cat([r.origin for r in regions]),
        lower=torch.cat([r.lower for r in regions]),
        upper=torch.cat([r.upper for r in regions]),
        reachable=torch.cat([r.reachable for r in regions]),
    )
    wishes = Wishes(
        x=torch.cat([w.x for w in wished]),
        target=torch.cat([w.target for w in wished]),
        region=region,
        norm=torch.cat([w.norm for w in wished]),
    )
    return NeighbourPairs(wishes=wishes, goal=torch.cat([g for _, g in parts]))
