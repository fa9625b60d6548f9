"""T-GLANCE: a small tree of subgroups, each solved by C-GLANCE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from cel.cf_methods.explanations.cohort import Cohort
from cel.cf_methods.explanations.predicates import Item
from cel.cf_methods.group_methods.glance.groups import (
    ActionSettings,
    Group,
    effectiveness,
    solve_groups,
)
from cel.errors import ConfigError
from cel.registry import did_you_mean

__all__ = ["Leaf", "important_features", "solve_tree", "split_items"]

LEAST_ROWS = 20


class TreeSettings(ActionSettings, Protocol):
    """Settings of GLANCE that the tree of subgroups looks at."""

    split_features: Sequence[str] | None
    child_count: int
    node_actions: int
    initial_clusters: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Leaf:
    """A subgroup: its conditions, its rows (positions in the query), and its actions."""

    items: tuple[Item, ...]
    rows: np.ndarray
    groups: list[Group]


def important_features(problem: Cohort, count: int) -> list[int]:
    """Return the features whose shuffling moves the margins of the fitted rows most."""
    query, space = problem.query, problem.space
    base = query.model.margin(query.x, query.target)
    order = torch.as_tensor(problem.rng.permutation(len(query)), device=query.x.device)
    effect = np.zeros(len(space))
    for position, f in enumerate(space):
        if query.budget.expired:
            break
        mixed = query.x.clone()
        columns = list(f.columns)
        mixed[:, columns] = query.x[order][:, columns]
        effect[position] = float((query.model.margin(mixed, query.target) - base).abs().mean())
    return [int(i) for i in np.argsort(-effect, kind="stable")[:count]]


def split_items(problem: Cohort, feature: int, rows: np.ndarray, children: int) -> list[Item]:
    """Cut the values that rows (n, d) have on a feature into contiguous parts."""
    f = problem.space.features[feature]
    if f.one_hot:
        present = np.flatnonzero(rows[:, list(f.columns)].max(0) > 0.5)
        parts = [p for p in np.array_split(present, children) if len(p)]
        levels = [tuple(k in p for k in range(len(f.columns))) for p in parts]
        return [Item(feature, levels=t) for t in levels] if len(parts) > 1 else []
    column = rows[:, f.columns[0]]
    shares = np.arange(1, children) / children
    edges = np.unique(np.quantile(column, shares, method="inverted_cdf"))
    edges = edges[edges < column.max()]
    if not len(edges):
        return []
    lows, highs = [-np.inf, *edges], [*edges, np.inf]
    return [Item(feature, low=a, high=b) for a, b in zip(lows, highs, strict=True)]


def solve_tree(settings: TreeSettings, problem: Cohort) -> list[Leaf]:
    """Grow the tree: at each node split by the feature whose children are most effective."""
    names = {n: i for i, n in enumerate(problem.space.names)}
    if settings.split_features is None:
        features = important_features(problem, 2)
    else:
        for name in settings.split_features:
            if name not in names:
                raise ConfigError(f"no feature {name!r} to split by; {did_you_mean(name, names)}")
        features = [names[n] for n in settings.split_features]
    rows = np.arange(len(problem.query))
    leaves = _grow(settings, problem, Leaf(items=(), rows=rows, groups=[]), features)
    if len(leaves) > 1:
        return leaves
    return [Leaf(items=(), rows=rows, groups=_solve(settings, problem, rows))]


def _solve(settings: TreeSettings, problem: Cohort, rows: np.ndarray) -> list[Group]:
    query = problem.query
    part = query.select(torch.as_tensor(rows, device=query.x.device))
    # Smaller nodes begin with fewer clusters, so that a level costs as much as the root.
    clusters = -(-settings.initial_clusters * len(rows) // len(query))
    return solve_groups(settings, problem, part, settings.node_actions, clusters)


def _grow(settings: TreeSettings, problem: Cohort, leaf: Leaf, features: list[int]) -> list[Leaf]:
    """Return the leaves below a node; every branch has its own list of features left."""
    best: tuple[float, int, list[Leaf]] | None = None
    for feature in features:
        if problem.query.budget.expired:
            break
        children = _children(settings, problem, leaf, feature)
        worth = sum(effectiveness(c.groups) for c in children)
        if children and (best is None or worth > best[0]):
            best = (worth, feature, children)
    if best is None:
        return [leaf]
    left = [f for f in features if f != best[1]]
    return [end for child in best[2] for end in _grow(settings, problem, child, left)]


def _children(settings: TreeSettings, problem: Cohort, leaf: Leaf, feature: int) -> list[Leaf]:
    x = problem.query.x.cpu().numpy()[leaf.rows]
    f = problem.space.features[feature]
    out = []
    for item in split_items(problem, feature, x, settings.child_count):
        rows = leaf.rows[item.holds(x, f)]
        if len(rows) < LEAST_ROWS:
            return []
        groups = _solve(settings, problem, rows)
        out.append(Leaf(items=(*leaf.items, item), rows=rows, groups=groups))
    return out
