"""Choosing the action of a group: the most effective one, and the cheapest of those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cel.cf_methods.edits import Edits, Tried, predict_edits
from cel.cf_methods.group_methods.glance_actions import permitted
from cel.cf_methods.problem import Problem
from cel.cf_methods.query import Query

__all__ = [
    "CHOICES",
    "Judged",
    "choose",
    "greedy_actions",
    "join_edits",
    "judge",
    "judge_stretched",
]

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


def judge(query: Query, edits: Edits, problem: Problem) -> Judged:
    """Try actions on the rows of a group; with very many, only the best of a sample on all."""
    if len(edits) * len(query) <= EXHAUSTIVE:
        return Judged(
            edits=edits, tried=predict_edits(query, edits, problem.price), screened=False
        )
    sample = query.select(query.rows()[:SCREEN_ROWS])
    tried = predict_edits(sample, edits, problem.price)
    order = _order(tried)[:SCREEN_KEPT]
    # Cheap actions that help many, and those that help others, belong to the final as well.
    largest = problem.price.largest
    worth = (tried.flips * (1 - tried.cost / largest).clamp(min=0)).mean(1)
    cheap = worth.argsort(descending=True, stable=True)[:SCREEN_KEPT]
    diverse = greedy_actions(tried, SCREEN_KEPT // 2, largest)
    kept = edits.select(sorted({*order.tolist(), *cheap.tolist(), *diverse}))
    return Judged(edits=kept, tried=predict_edits(query, kept, problem.price), screened=True)


def judge_stretched(query: Query, edits: Edits, problem: Problem, goal: float) -> Judged:
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
        more = predict_edits(query, longer, problem.price)
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


def _order(tried: Tried) -> Tensor:
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
    order = _order(judged.tried)
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
