"""Predicates of AReS: what a rule may ask for, and what it may tell people to change."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cel.cf_methods.predicates import Item
from cel.cf_methods.problem import Problem
from cel.space import Feature

__all__ = ["Then", "feature_edges", "if_items", "then_items"]


@dataclass(frozen=True)
class Then:
    """Set a feature to a value: an encoded number, or the position of a category."""

    feature: int
    value: float

    def satisfies(self, item: Item) -> bool:
        """Whether the new value satisfies a condition on the same feature."""
        if item.levels is not None:
            return item.levels[int(self.value)]
        return bool(item.low < self.value <= item.high)


def feature_edges(column: np.ndarray, bins: int) -> np.ndarray:
    """Return inner bin edges of training values (m,): quantiles, and frequent values alone.

    Edges are training values and bins are half-open (low, high]. A value with a share of at least
    half a bin gets a bin of its own. The largest value is no edge.

    >>> feature_edges(np.array([0, 0, 0, 0, 0, 0, 1, 2, 3, 4.0]), 5)
    array([0., 1., 2., 3.])
    """
    values, counts = np.unique(column, return_counts=True)
    shares = np.arange(1, bins) / bins
    edges = set(np.quantile(column, shares, method="inverted_cdf").tolist())
    for i in np.flatnonzero(counts >= len(column) / (2 * bins)):
        edges.add(float(values[i]))
        if i:
            edges.add(float(values[i - 1]))
    return np.array(sorted(edges - {float(values[-1])}))


def if_items(problem: Problem, bins: int) -> list[list[Item]]:
    """Return, for each feature, one-sided and two-sided intervals, or = and != conditions."""
    x = problem.train.x.cpu().numpy()
    out = []
    for position, feature in enumerate(problem.space):
        if feature.one_hot:
            size = len(feature.columns)
            one = np.eye(size, dtype=bool)
            found = [Item(position, levels=tuple(map(bool, row))) for row in one]
            found += [Item(position, levels=tuple(map(bool, ~row))) for row in one]
            out.append([i for i in dict.fromkeys(found) if not i.trivial and any(i.levels or ())])
            continue
        edges = feature_edges(x[:, feature.columns[0]], bins)
        found = [Item(position, high=e) for e in edges]
        found += [Item(position, low=e) for e in edges]
        found += [Item(position, low=a, high=b) for a, b in pairwise(edges)]
        out.append(found)
    return out


def then_items(problem: Problem, bins: int, limit: int) -> tuple[list[Then], bool]:
    """Return what rules may set, and whether the limit cut the list short.

    Numbers go to the median of the target's training rows in each bin (of all rows where the bin
    holds none of the target); categories to every level that may be reached and was seen. Only
    movable features take part. When there are too many, features whose distribution differs most
    between target rows and affected rows come first.
    """
    space, movable = problem.space, problem.price.movable
    x, hit = problem.train.x.cpu().numpy(), problem.hit.cpu().numpy()
    groups: list[tuple[float, list[Then]]] = []
    contrast = _contrast(problem, x[hit])
    for position in np.flatnonzero(movable).tolist():
        feature = space.features[position]
        found = _levels(feature, x, position) if feature.one_hot else []
        if not feature.one_hot:
            found = _medians(x[:, feature.columns[0]], hit, bins, position)
        groups.append((-float(contrast[position]), found))
    groups.sort(key=lambda pair: pair[0])
    everything = [item for _, found in groups for item in found]
    return everything[:limit], len(everything) > limit


def _levels(feature: Feature, x: np.ndarray, position: int) -> list[Then]:
    seen = x[:, list(feature.columns)].max(0) > 0.5
    allowed = seen & np.array(feature.allowed_mask)
    return [Then(int(position), float(k)) for k in np.flatnonzero(allowed)]


def _medians(column: np.ndarray, hit: np.ndarray, bins: int, position: int) -> list[Then]:
    edges = feature_edges(column, bins)
    place = np.searchsorted(edges, column, side="left")
    values = []
    for b in np.unique(place):
        inside = column[(place == b) & hit]
        chosen = inside if len(inside) else column[place == b]
        values.append(float(np.quantile(chosen, 0.5, method="inverted_cdf")))
    return [Then(int(position), v) for v in dict.fromkeys(values)]


def _contrast(problem: Problem, target_rows: np.ndarray) -> np.ndarray:
    """(p,) difference of means between target rows and affected rows, in bins."""
    space = problem.space
    if not len(target_rows):
        return np.zeros(len(space))
    gap = target_rows.mean(0) - problem.query.x.cpu().numpy().mean(0)
    out = np.zeros(len(space))
    np.add.at(out, space.owner, np.abs(gap) * problem.price.scale.cpu().numpy())
    return out
