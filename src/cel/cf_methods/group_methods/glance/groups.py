"""Groups of GLANCE: clusters that merge, one action each."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.explanations.cohort import Cohort
from cel.cf_methods.explanations.edits import BinCost, Edits
from cel.cf_methods.group_methods.glance.actions import (
    Judged,
    centroid_query,
    choose,
    extract,
    greedy_actions,
    join_edits,
    judge,
    judge_stretched,
    mean_action,
    thin,
    unique_edits,
)
from cel.cf_methods.group_methods.glance.centroids import local_counterfactuals
from cel.cf_methods.query import Query
from cel.space import FeatureSpace

__all__ = [
    "ActionSettings",
    "Clusters",
    "Group",
    "centroid",
    "effectiveness",
    "first_clusters",
    "merge_clusters",
    "solve_groups",
]


def centroid(x: Tensor, space: FeatureSpace) -> Tensor:
    """Return (d,) the mean of the numbers and the most frequent level of each category."""
    mean = x.mean(0)
    for f in space.one_hot_features:
        columns = list(f.columns)
        level = int(mean[columns].argmax())
        mean[columns] = torch.nn.functional.one_hot(torch.tensor(level), len(columns)).to(mean)
    return mean


def first_clusters(x: Tensor, count: int, seed: int) -> np.ndarray:
    """Return cluster labels (n,) of rows by k-means on encoded columns."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    rows = x.double().cpu().numpy()
    count = min(count, len(np.unique(rows, axis=0)))
    if count == len(rows):
        return np.arange(len(rows))
    with warnings.catch_warnings():
        # Rows that differ by rounding only may leave clusters empty, which does no harm.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = KMeans(count, n_init=1, max_iter=50, random_state=seed).fit_predict(rows)
    return np.asarray(np.unique(found, return_inverse=True)[1])


class ActionSettings(Protocol):
    """Settings of GLANCE that finding actions looks at."""

    n_local: int
    weights: tuple[float, float]
    generator: Literal["nun", "random", "gradient"]
    sparsify: bool
    choice: Literal["max-eff", "mean-act", "low-cost"]
    threshold: float
    goal: float
    select: Literal["merge", "greedy"]
    random_state: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Clusters:
    """Final clusters: label of every row, label of every counterfactual, and the merges made."""

    rows: np.ndarray
    points: np.ndarray
    merges: list[tuple[int, int]]


def merge_clusters(
    x: Tensor,
    labels: np.ndarray,
    points: Tensor,
    owners: np.ndarray,
    count: int,
    space: FeatureSpace,
    bin_cost: BinCost,
    weights: tuple[float, float] = (0.5, 0.5),
) -> Clusters:
    """Merge clusters until `count` are left.

    The smallest cluster (the first of equals) joins the one with the least
    `w1 * cost(centroids) + w2 * cost(centroids of counterfactuals)`. Rows (n, d) and
    counterfactuals (a, d) come with the number 0..k-1 of their cluster; every cluster has both.
    """
    labels, owners = labels.copy(), owners.copy()
    alive = np.ones(int(labels.max()) + 1, dtype=bool)
    size = np.bincount(labels, minlength=len(alive))
    homes = torch.stack([centroid(x[labels == k], space) for k in range(len(alive))])
    aims = torch.stack([centroid(points[owners == k], space) for k in range(len(alive))])
    merges = []
    while alive.sum() > count:
        small = int(np.flatnonzero(alive)[size[alive].argmin()])
        gap = weights[0] * bin_cost(homes[small], homes) + weights[1] * bin_cost(aims[small], aims)
        gap[torch.as_tensor(~alive | (np.arange(len(alive)) == small))] = torch.inf
        big = int(gap.argmin())
        merges.append((small, big))
        labels[labels == small], owners[owners == small] = big, big
        size[big] += size[small]
        alive[small] = False
        homes[big] = centroid(x[labels == big], space)
        aims[big] = centroid(points[owners == big], space)
    final = np.cumsum(alive) - 1
    return Clusters(rows=final[labels], points=final[owners], merges=merges)


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """One action and the rows that it was chosen for.

    Attributes:
        edit: the action, as edits of length 1.
        rows: positions in the query.
        home: (d,) centroid of the rows.
        flips: (n,) bool over *all* rows of the query.
        cost: (n,) cost of the action for all rows.
        logs: what was cut short.
    """

    edit: Edits
    rows: np.ndarray
    home: Tensor
    flips: Tensor
    cost: Tensor
    logs: dict[str, int] = field(default_factory=dict)


def effectiveness(groups: list[Group]) -> float:
    """Return the share of rows that at least one action flips."""
    if not groups:
        return 0.0
    return float(torch.stack([g.flips for g in groups]).any(0).double().mean())


def solve_groups(
    settings: ActionSettings, problem: Cohort, query: Query, count: int, clusters: int
) -> list[Group]:
    """Return `count` actions (or fewer) for the rows of a query; none if no action is possible.

    Args:
        settings: of GLANCE.
        problem: what to fit on.
        query: some rows of the problem.
        count: actions wanted.
        clusters: clusters to begin with.
    """
    size = max(count, min(clusters, len(query)))
    labels = first_clusters(query.x, size, settings.random_state)
    homes = torch.stack([centroid(query.x[labels == k], problem.space) for k in _range(labels)])
    points, owners = local_counterfactuals(problem, homes, settings.n_local, settings.generator)
    if not len(points):
        return []
    around = centroid_query(problem, homes[owners])
    small = thin(around, points, problem.bin_cost) if settings.sparsify else points
    pool = [extract(homes[owners], p, problem.space, problem.bin_cost) for p in (points, small)]
    labels, owned = _with_counterfactuals(labels, homes, owners.cpu().numpy(), problem)
    merged = merge_clusters(
        query.x, labels, small, owned, 1 if settings.select == "greedy" else count,
        problem.space, problem.bin_cost, settings.weights,
    )  # fmt: skip
    if settings.select == "greedy":
        return _greedy(
            settings, problem, query, _pool(pool, np.arange(len(points)), query.x, problem), count
        )
    return _one_each(settings, problem, query, merged, pool)


def _range(labels: np.ndarray) -> range:
    return range(int(labels.max()) + 1)


def _with_counterfactuals(
    labels: np.ndarray, homes: Tensor, owners: np.ndarray, problem: Cohort
) -> tuple[np.ndarray, np.ndarray]:
    """Move the rows of clusters without a counterfactual to the nearest cluster that has one."""
    having = np.unique(owners)
    gap = problem.bin_cost(homes[:, None], homes[torch.as_tensor(having)][None])
    nearest = gap.argmin(1).cpu().numpy()
    nearest[having] = np.arange(len(having))
    return nearest[labels], nearest[owners]


def _pool(parts: list[Edits], which: np.ndarray, rows: Tensor, problem: Cohort) -> Edits:
    """Join the raw and the thinned actions of some counterfactuals, their means, and one more.

    That one leads from the centroid of the rows to the centroid of all target rows.
    """
    chosen = [p.select(torch.as_tensor(which)) for p in parts]
    chosen += [mean_action(c, problem.space) for c in chosen]
    if bool(problem.hit.any()):
        start = centroid(rows, problem.space)
        end = centroid(problem.train.x[problem.hit], problem.space)
        chosen.append(extract(start[None], end[None], problem.space, problem.bin_cost))
    return unique_edits(join_edits(chosen))


def _one_each(
    settings: ActionSettings, problem: Cohort, query: Query, clusters: Clusters, pool: list[Edits]
) -> list[Group]:
    """Choose the action of every cluster among those of its own counterfactuals."""
    groups = []
    for number in _range(clusters.rows):
        rows = np.flatnonzero(clusters.rows == number)
        part = query.select(torch.as_tensor(rows, device=query.x.device))
        actions = _pool(pool, np.flatnonzero(clusters.points == number), part.x, problem)
        if settings.choice == "mean-act":
            own = pool[-1].select(torch.as_tensor(np.flatnonzero(clusters.points == number)))
            actions = mean_action(own, problem.space)
        if not len(actions):
            continue
        judged = judge_stretched(part, actions, problem, settings.goal)
        best = choose(judged, settings.choice, settings.threshold)
        groups.append(_group(problem, query, judged, best, rows))
    return _without_twins(groups, query, problem)


def _without_twins(groups: list[Group], query: Query, problem: Cohort) -> list[Group]:
    """Join groups that have the same action."""
    out: dict[bytes, Group] = {}
    for group in groups:
        parts = (group.edit.shift, group.edit.fixed, group.edit.value)
        key = b"".join(p.cpu().numpy().tobytes() for p in parts)
        first = out.setdefault(key, group)
        if first is not group:
            rows = np.sort(np.concatenate([first.rows, group.rows]))
            home = centroid(query.x[torch.as_tensor(rows)], problem.space)
            out[key] = replace(first, rows=rows, home=home)
    return list(out.values())


def _greedy(
    settings: ActionSettings, problem: Cohort, query: Query, actions: Edits, count: int
) -> list[Group]:
    """Choose actions for everybody; rows belong to the cheapest one that flips them."""
    if not len(actions):
        return []
    judged = judge_stretched(query, actions, problem, settings.goal)
    chosen = greedy_actions(judged.tried, count, problem.bin_cost.largest)
    flips, cost = judged.tried.flips[chosen], judged.tried.cost[chosen]
    best = torch.where(flips, cost, torch.inf).argmin(0).cpu().numpy()
    groups = [
        _group(problem, query, judged, i, np.flatnonzero(best == k)) for k, i in enumerate(chosen)
    ]
    return [g for g in groups if len(g.rows)]


def _group(problem: Cohort, query: Query, judged: Judged, best: int, rows: np.ndarray) -> Group:
    edit = judged.edits.select([best])
    everyone = judge(query, edit, problem).tried
    at = torch.as_tensor(rows, device=query.x.device)
    return Group(
        edit=edit,
        rows=rows,
        home=centroid(query.x[at], problem.space),
        flips=everyone.flips[0],
        cost=everyone.cost[0],
        logs={"screened": int(judged.screened)},
    )
