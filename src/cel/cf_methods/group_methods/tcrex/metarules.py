"""Metarules: regions of rows that share their cheapest rule, from a tree on the rules' grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cel.cf_methods.explanations.cohort import Cohort
from cel.cf_methods.group_methods.tcrex.boxes import boxes_of_splits
from cel.cf_methods.group_methods.tcrex.reach import Reach
from cel.space.region import Region

__all__ = ["Metarules", "cheapest_rules", "learn_metarules", "neighbouring_rows"]

JITTER = 0.1  # of the training range, and share of categories that are exchanged
NEIGHBOURS = 2000  # jittered rows of one round
ROUNDS = 10
ENOUGH = 0.995


@dataclass(frozen=True, kw_only=True, eq=False)
class Metarules:
    """A partition of the space; every part has one rule, or none.

    The tree sees, instead of values, between which bounds of the rules they lie. A cost depends
    on nothing else, and every split of the tree is a bound of a rule.

    Attributes:
        bounds: column -> ascending bounds of the rules.
        lower: (L, d) the parts.
        upper: (L, d).
        rule: (L,) the rule of each part, -1 for none.
    """

    bounds: dict[int, np.ndarray]
    lower: np.ndarray
    upper: np.ndarray
    rule: np.ndarray
    _tree: Any
    _leaf: np.ndarray  # node number -> part, -1 for inner nodes

    def __len__(self) -> int:
        return len(self.rule)

    def part_of(self, x: np.ndarray) -> np.ndarray:
        """Return the part that each row (n, d) is in, (n,)."""
        if self._tree is None:
            return np.zeros(len(x), dtype=np.int64)
        return np.asarray(self._leaf[self._tree.apply(grid_cells(x, self.bounds))])


def grid_cells(x: np.ndarray, bounds: dict[int, np.ndarray]) -> np.ndarray:
    """Return the cell of each row: how many bounds lie strictly below its values, (n, c)."""
    cells = [np.searchsorted(edges, x[:, c], "left") for c, edges in bounds.items()]
    return np.stack(cells, 1).astype(np.float32)


def cheapest_rules(reach: Reach, x: np.ndarray) -> np.ndarray:
    """Return argmin over R of cost(x, R) for rows (n, d), -1 where every rule is out of reach."""
    like = reach.lower
    region = Region.around(reach.space, torch.as_tensor(x).to(like))
    value, best = reach.costs(region).min(1)
    return np.asarray(torch.where(value.isfinite(), best, -1).cpu().numpy())


def neighbouring_rows(problem: Cohort, count: int) -> np.ndarray:
    """Return rows near affected rows: numbers jittered, some categories from other rows."""
    x, rng = problem.query.x.cpu().numpy(), problem.rng
    low, high = problem.bin_cost.low.cpu().numpy(), problem.bin_cost.high.cpu().numpy()
    out = x[rng.integers(0, len(x), count)]
    for f in problem.space:
        columns = list(f.columns)
        if f.is_categorical:
            new = np.flatnonzero(rng.random(count) < JITTER)
            out[new[:, None], columns] = x[rng.integers(0, len(x), len(new))][:, columns]
            continue
        c = columns[0]
        moved = out[:, c] + JITTER * (high[c] - low[c]) * rng.standard_normal(count)
        if f.step:
            moved = f.anchor + f.step * np.round((moved - f.anchor) / f.step)
        out[:, c] = np.clip(moved, low[c], high[c])
    return out


def learn_metarules(reach: Reach, problem: Cohort) -> Metarules:
    """Grow the tree on affected rows and their neighbours until every part has one rule.

    Neighbours are added as long as new ones are often told another rule than the cheapest.
    """
    bounds = _bounds(reach)
    rows = problem.query.x.cpu().numpy()
    best = cheapest_rules(reach, rows)
    seed = int(problem.rng.integers(2**31))
    for _ in range(ROUNDS):
        fresh = neighbouring_rows(problem, NEIGHBOURS)
        rows = np.concatenate([rows, fresh])
        best = np.concatenate([best, cheapest_rules(reach, fresh)])
        made = _grow(grid_cells(rows, bounds), best, bounds, rows.shape[1], seed)
        probe = neighbouring_rows(problem, NEIGHBOURS)
        told = made.rule[made.part_of(probe)]
        if (told == cheapest_rules(reach, probe)).mean() >= ENOUGH or problem.query.budget.expired:
            break
    return made


def _grow(
    cells: np.ndarray, best: np.ndarray, bounds: dict[int, np.ndarray], width: int, seed: int
) -> Metarules:
    from sklearn.tree import DecisionTreeClassifier

    if (best == best[0]).all():
        everywhere = np.full((1, width), np.inf, dtype=np.float32)
        return Metarules(
            bounds=bounds, lower=-everywhere, upper=everywhere, rule=best[:1], _tree=None,
            _leaf=np.zeros(1, dtype=np.int64),
        )  # fmt: skip
    return _parts(DecisionTreeClassifier(random_state=seed).fit(cells, best), bounds, width)


def _bounds(reach: Reach) -> dict[int, np.ndarray]:
    ends = torch.cat([reach.lower, reach.upper]).cpu().numpy()
    out = {}
    for c in np.flatnonzero(np.isfinite(ends).any(0)):
        edges = np.unique(ends[:, c])
        out[int(c)] = edges[np.isfinite(edges)]
    return out


def _parts(fitted: Any, bounds: dict[int, np.ndarray], width: int) -> Metarules:
    tree, columns = fitted.tree_, np.array(list(bounds), dtype=np.int64)
    column, edge = np.zeros(tree.node_count, dtype=np.int64), np.zeros(tree.node_count, np.float32)
    for node in np.flatnonzero(tree.children_left >= 0):
        column[node] = columns[tree.feature[node]]
        edge[node] = bounds[column[node]][int(np.floor(tree.threshold[node]))]
    below, above = tree.children_left, tree.children_right
    lower, upper = boxes_of_splits(below, above, column, edge, width)
    leaves = np.flatnonzero(tree.children_left < 0)
    number = np.full(tree.node_count, -1)
    number[leaves] = np.arange(len(leaves))
    rule = fitted.classes_[tree.value[leaves, 0].argmax(1)]
    return Metarules(
        bounds=bounds, lower=lower[leaves], upper=upper[leaves], rule=rule, _tree=tree,
        _leaf=number,
    )  # fmt: skip
