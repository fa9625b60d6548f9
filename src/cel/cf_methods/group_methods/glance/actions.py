"""Actions of GLANCE: from a centroid to a counterfactual, and which one a group takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cel.cf_methods.explanations.cohort import Cohort
from cel.cf_methods.explanations.edits import BinCost, Edits, Tried, predict_edits
from cel.cf_methods.query import MARGIN, Query
from cel.search import RowStreams
from cel.space import FeatureSpace
from cel.space.layout import Layout, by_feature
from cel.space.region import Region

__all__ = [
    "CHOICES",
    "Judged",
    "centroid_query",
    "choose",
    "extract",
    "greedy_actions",
    "join_edits",
    "judge",
    "judge_stretched",
    "mean_action",
    "permitted",
    "thin",
    "unique_edits",
]

TRIES = 128  # features that are given back one by one


def centroid_query(problem: Cohort, centroids: Tensor) -> Query:
    """Return the query of some centroids (k, d) with the target of the problem."""
    query = problem.query
    return replace(
        query,
        x=centroids,
        target=query.target[:1].expand(len(centroids), *query.target.shape[1:]),
        region=Region.around(problem.space, centroids),
        rng=RowStreams.of(centroids, 0),
    )


def extract(start: Tensor, end: Tensor, space: FeatureSpace, bin_cost: BinCost) -> Edits:
    """Return the actions (a, d) that lead from `start` to `end` (a, d).

    Numbers get a shift (whole steps, rounded away from zero), categories that differ get the new
    level. Features that may not move are left out.
    """
    movable = torch.as_tensor(bin_cost.movable[space.owner], device=start.device)
    lay = Layout.of(space, start)
    gap = torch.where(movable & lay.numeric, end - start, 0)
    gap = torch.where((gap * bin_cost.scale).abs() > 1e-4, gap, 0)
    fixed = torch.zeros_like(start, dtype=torch.bool)
    for f in space.one_hot_features:
        columns = list(f.columns)
        level = end[:, columns].argmax(1)
        allowed = torch.tensor(f.allowed_mask, device=start.device)[level]
        differs = (level != start[:, columns].argmax(1)) & allowed & movable[columns[0]]
        fixed[:, columns] = differs[:, None]
    value = torch.where(fixed, (end > 0.5).to(end.dtype), 0)
    return permitted(Edits(shift=gap, fixed=fixed, value=value), lay)


def permitted(edits: Edits, lay: Layout) -> Edits:
    """Remove shifts in forbidden directions, and round the others to whole steps, away from 0."""
    gap = torch.where(lay.up, edits.shift.clamp(min=0), edits.shift)
    gap = torch.where(lay.down, gap.clamp(max=0), gap)
    step = torch.where(lay.step > 0, lay.step, 1)
    whole = gap.sign() * step * (gap.abs() / step - 1e-4).ceil().clamp(min=0)
    return replace(edits, shift=torch.where(lay.step > 0, whole, gap))


def thin(query: Query, x: Tensor, bin_cost: BinCost) -> Tensor:
    """Give back features of points (a, d) while the rows of the query keep their target.

    Features are tried in order of how little margin they bring for their cost, each kept back if
    the point still has the target. With very many features, blocks of cheap ones go first.
    """
    owner = query.region.layout.owner
    good = query.model.margin(x, query.target) >= MARGIN
    if len(query.region.space) > TRIES:
        x = _by_blocks(query, x, bin_cost, good)
    order, count = _order(query, x, bin_cost)
    for rank in range(count):
        if query.budget.expired:
            break
        columns = owner[None] == order[:, rank, None]
        trial = torch.where(columns, query.x, x)
        ok = good & (query.model.margin(trial, query.target) >= MARGIN)
        x = torch.where(ok[:, None], trial, x)
    return x


def _feature_costs(query: Query, x: Tensor, bin_cost: BinCost) -> Tensor:
    """(a, p) what each feature of each point costs."""
    region = query.region
    return by_feature((x - query.x).abs() * bin_cost.scale, region.layout.owner, len(region.space))


def _order(query: Query, x: Tensor, bin_cost: BinCost) -> tuple[Tensor, int]:
    """Return (features (a, c) in order of trial, c): least margin for the cost first."""
    owner, cost = query.region.layout.owner, _feature_costs(query, x, bin_cost)
    dearest = cost.amax(0).argsort(descending=True)
    some = dearest[: min(TRIES, int((cost.amax(0) > 0).sum()))]
    base = query.model.margin(x, query.target)
    loss = torch.full_like(cost, torch.inf)
    for feature in some.tolist():
        trial = torch.where(owner == feature, query.x, x)
        loss[:, feature] = base - query.model.margin(trial, query.target)
    worth = torch.where(cost > 0, loss / cost.clamp(min=1e-9), torch.inf)
    return worth.argsort(dim=1, stable=True)[:, : len(some)], len(some)


def _by_blocks(
    query: Query, x: Tensor, bin_cost: BinCost, good: Tensor, blocks: int = 64
) -> Tensor:
    """Give back whole blocks of features, cheapest first."""
    owner = query.region.layout.owner
    rank = _feature_costs(query, x, bin_cost).argsort(dim=1, stable=True).argsort(dim=1)[:, owner]
    size = -(-len(query.region.space) // blocks)
    for block in range(blocks):
        if query.budget.expired:
            break
        inside = (rank >= block * size) & (rank < (block + 1) * size)
        trial = torch.where(inside, query.x, x)
        ok = good & (query.model.margin(trial, query.target) >= MARGIN)
        x = torch.where(ok[:, None], trial, x)
    return x


def mean_action(edits: Edits, space: FeatureSpace) -> Edits:
    """Return one action: the mean shift, and the levels that most of the actions set."""
    fixed, value = edits.fixed.double().mean(0), edits.value.double().mean(0)
    out = Edits.nothing(1, edits.shift)
    out.shift[0] = edits.shift.mean(0)
    for f in space.one_hot_features:
        columns = list(f.columns)
        if float(fixed[columns[0]]) > 0.5:
            out.fixed[0, columns] = True
            out.value[0, columns[int(value[columns].argmax())]] = 1
    return permitted(out, Layout.of(space, edits.shift))


def unique_edits(edits: Edits) -> Edits:
    """Drop actions that repeat earlier ones or do nothing."""
    flat = torch.cat([edits.shift, edits.fixed.to(edits.shift), edits.value], 1)
    busy = ((edits.shift != 0) | edits.fixed).any(1)
    seen: dict[bytes, int] = {}
    for i, row in enumerate((flat * 1e5).round().to(torch.int64).cpu().numpy()):
        if bool(busy[i]):
            seen.setdefault(row.tobytes(), i)
    return edits.select(list(seen.values()))


CHOICES = ("max-eff", "mean-act", "low-cost")
EXHAUSTIVE = 100_000  # evaluations of a full table
SCREEN_ROWS = 150
SCREEN_KEPT = 40
STRETCH = (1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
MEANS = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class Judged:
    """Actions that were tried on all rows of a group, and whether others were sorted out first."""

    edits: Edits
    tried: Tried
    screened: bool


def judge(query: Query, edits: Edits, problem: Cohort) -> Judged:
    """Try actions on the rows of a group; with very many, only the best of a sample on all."""
    if len(edits) * len(query) <= EXHAUSTIVE:
        return Judged(
            edits=edits, tried=predict_edits(query, edits, problem.bin_cost), screened=False
        )
    sample = query.select(query.rows()[:SCREEN_ROWS])
    tried = predict_edits(sample, edits, problem.bin_cost)
    order = _by_effect(tried)[:SCREEN_KEPT]
    # Cheap actions that help many, and those that help others, belong to the final as well.
    largest = problem.bin_cost.largest
    worth = (tried.flips * (1 - tried.cost / largest).clamp(min=0)).mean(1)
    cheap = worth.argsort(descending=True, stable=True)[:SCREEN_KEPT]
    diverse = greedy_actions(tried, SCREEN_KEPT // 2, largest)
    kept = edits.select(sorted({*order.tolist(), *cheap.tolist(), *diverse}))
    return Judged(edits=kept, tried=predict_edits(query, kept, problem.bin_cost), screened=True)


def judge_stretched(query: Query, edits: Edits, problem: Cohort, goal: float) -> Judged:
    """Try actions; while none flips a share `goal` of the rows, try longer ones as well.

    Shifts grow and are clipped to the range of the data, so the longest go to its edge.
    """
    judged = judge(query, edits, problem)
    # The last actions lead to the middle of the target rows: the best ones to prolong.
    base = join_edits([judged.edits, edits.select(slice(-MEANS, None))])
    for factor in STRETCH:
        share = judged.tried.flips.double().mean(1)
        if float(share.max()) >= goal or query.budget.expired:
            break
        longer = permitted(replace(base, shift=base.shift * factor), query.region.layout)
        more = predict_edits(query, longer, problem.bin_cost)
        judged = Judged(
            edits=join_edits([judged.edits, longer]),
            tried=Tried(
                margin=torch.cat([judged.tried.margin, more.margin]),
                cost=torch.cat([judged.tried.cost, more.cost]),
            ),
            screened=judged.screened,
        )
    return judged


def join_edits(parts: Sequence[Edits]) -> Edits:
    """Return all edits of all parts."""
    names = ("shift", "fixed", "value")
    return Edits(**{n: torch.cat([getattr(p, n) for p in parts]) for n in names})


def _by_effect(tried: Tried) -> Tensor:
    """Sort actions by most flipped rows, then least total cost of those."""
    flips = tried.flips.sum(1)
    cost = torch.where(tried.flips, tried.cost, 0).sum(1)
    by_cost = cost.argsort(stable=True)
    return by_cost[flips[by_cost].argsort(descending=True, stable=True)]


def choose(judged: Judged, choice: str, threshold: float) -> int:
    """Return the position of the action for a group.

    Args:
        judged: actions tried on all rows of the group.
        choice: "max-eff" flips most rows, at least total cost; "low-cost" is the cheapest of
            those that flip at least `threshold` of the rows, else the most effective.
        threshold: that share.
    """
    order = _by_effect(judged.tried)
    if choice != "low-cost":
        return int(order[0])
    share = judged.tried.flips.double().mean(1)
    mean = torch.where(judged.tried.flips, judged.tried.cost, 0).sum(1)
    mean = mean / judged.tried.flips.sum(1).clamp(min=1)
    enough = share >= min(threshold, float(share.max()))
    return int(torch.where(enough, mean, torch.inf).argmin())


def greedy_actions(tried: Tried, count: int, largest: float) -> list[int]:
    """Return actions that together flip most rows, cheaper ones first among equals."""
    worth = tried.flips * (2 - (tried.cost / largest).clamp(max=1))
    best = torch.zeros_like(worth[0])
    chosen: list[int] = []
    for _ in range(min(count, len(worth))):
        gain = (torch.maximum(worth, best) - best).sum(1)
        if chosen and float(gain.max()) <= 1e-9:
            break
        chosen.append(int(gain.argmax()))
        best = torch.maximum(best, worth[chosen[-1]])
    return chosen
