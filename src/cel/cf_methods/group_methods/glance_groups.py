"""C-GLANCE on one set of rows: clusters, local counterfactuals, merging, one action each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.edits import Edits
from cel.cf_methods.group_methods.glance_actions import (
    centroid_query,
    extract,
    mean_action,
    thin,
    unique_edits,
)
from cel.cf_methods.group_methods.glance_choice import (
    Judged,
    choose,
    greedy_actions,
    join_edits,
    judge,
    judge_stretched,
)
from cel.cf_methods.group_methods.glance_clusters import (
    Clusters,
    centroid,
    first_clusters,
    merge_clusters,
)
from cel.cf_methods.group_methods.glance_local import local_counterfactuals
from cel.cf_methods.problem import Problem
from cel.cf_methods.query import Query

if TYPE_CHECKING:
    from cel.cf_methods.group_methods.glance import GLANCE

__all__ = ["Group", "effectiveness", "solve_groups"]


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
    method: GLANCE, problem: Problem, query: Query, count: int, clusters: int
) -> list[Group]:
    """Return `count` actions (or fewer) for the rows of a query; none if no action is possible.

    Args:
        method: the settings.
        problem: what to fit on.
        query: some rows of the problem.
        count: actions wanted.
        clusters: clusters to begin with.
    """
    size = max(count, min(clusters, len(query)))
    labels = first_clusters(query.x, size, method.random_state)
    homes = torch.stack([centroid(query.x[labels == k], problem.space) for k in _range(labels)])
    points, owners = local_counterfactuals(problem, homes, method.n_local, method.generator)
    if not len(points):
        return []
    around = centroid_query(problem, homes[owners])
    small = thin(around, points, problem.price) if method.sparsify else points
    pool = [extract(homes[owners], p, problem.space, problem.price) for p in (points, small)]
    labels, owned = _with_counterfactuals(labels, homes, owners.cpu().numpy(), problem)
    merged = merge_clusters(
        query.x, labels, small, owned, 1 if method.select == "greedy" else count,
        problem.space, problem.price, method.weights,
    )  # fmt: skip
    if method.select == "greedy":
        return _greedy(
            method, problem, query, _pool(pool, np.arange(len(points)), query.x, problem), count
        )
    return _one_each(method, problem, query, merged, pool)


def _range(labels: np.ndarray) -> range:
    return range(int(labels.max()) + 1)


def _with_counterfactuals(
    labels: np.ndarray, homes: Tensor, owners: np.ndarray, problem: Problem
) -> tuple[np.ndarray, np.ndarray]:
    """Move the rows of clusters without a counterfactual to the nearest cluster that has one."""
    having = np.unique(owners)
    gap = problem.price(homes[:, None], homes[torch.as_tensor(having)][None])
    nearest = gap.argmin(1).cpu().numpy()
    nearest[having] = np.arange(len(having))
    return nearest[labels], nearest[owners]


def _pool(parts: list[Edits], which: np.ndarray, rows: Tensor, problem: Problem) -> Edits:
    """Join the raw and the thinned actions of some counterfactuals, their means, and one more.

    That one leads from the centroid of the rows to the centroid of all target rows.
    """
    chosen = [p.select(torch.as_tensor(which)) for p in parts]
    chosen += [mean_action(c, problem.space) for c in chosen]
    if bool(problem.hit.any()):
        start = centroid(rows, problem.space)
        end = centroid(problem.train.x[problem.hit], problem.space)
        chosen.append(extract(start[None], end[None], problem.space, problem.price))
    return unique_edits(join_edits(chosen))


def _one_each(
    method: GLANCE, problem: Problem, query: Query, clusters: Clusters, pool: list[Edits]
) -> list[Group]:
    """Choose the action of every cluster among those of its own counterfactuals."""
    groups = []
    for number in _range(clusters.rows):
        rows = np.flatnonzero(clusters.rows == number)
        part = query.select(torch.as_tensor(rows, device=query.x.device))
        actions = _pool(pool, np.flatnonzero(clusters.points == number), part.x, problem)
        if method.choice == "mean-act":
            own = pool[-1].select(torch.as_tensor(np.flatnonzero(clusters.points == number)))
            actions = mean_action(own, problem.space)
        if not len(actions):
            continue
        judged = judge_stretched(part, actions, problem, method.goal)
        best = choose(judged, method.choice, method.threshold)
        groups.append(_group(problem, query, judged, best, rows))
    return _without_twins(groups, query, problem)


def _without_twins(groups: list[Group], query: Query, problem: Problem) -> list[Group]:
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
    method: GLANCE, problem: Problem, query: Query, actions: Edits, count: int
) -> list[Group]:
    """Choose actions for everybody; rows belong to the cheapest one that flips them."""
    if not len(actions):
        return []
    judged = judge_stretched(query, actions, problem, method.goal)
    chosen = greedy_actions(judged.tried, count, problem.price.largest)
    flips, cost = judged.tried.flips[chosen], judged.tried.cost[chosen]
    best = torch.where(flips, cost, torch.inf).argmin(0).cpu().numpy()
    groups = [
        _group(problem, query, judged, i, np.flatnonzero(best == k)) for k, i in enumerate(chosen)
    ]
    return [g for g in groups if len(g.rows)]


def _group(problem: Problem, query: Query, judged: Judged, best: int, rows: np.ndarray) -> Group:
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
