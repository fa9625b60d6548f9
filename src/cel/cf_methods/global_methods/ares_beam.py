"""Which sets of changes are worth a rule: a beam over "then" sets on the soft score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.edits import Edits, Tried, predict_edits
from cel.cf_methods.global_methods.ares_items import Then
from cel.cf_methods.problem import Problem
from cel.cf_methods.query import Query
from cel.space import FeatureSpace

__all__ = ["Beam", "ThenSet", "beam_search", "set_edits"]

ThenSet = tuple[Then, ...]
"""Changes of different features, ordered by feature."""

LEVEL_VALUES = 2**26  # entries of all edited rows of one size
ENOUGH = 0.999  # share of sampled rows; deeper sets cannot add anything


@dataclass(frozen=True, kw_only=True)
class Beam:
    """Sizes of the search.

    Attributes:
        width: sets kept at each size.
        parents: sets extended at each size.
        extensions: single changes that extend them, best first.
        rows: sampled rows that judge a set.
        largest: most changes in a set, in the first round.
        rounds: searches; each after the first looks only at rows that no set helps yet.
        last_resort: most changes in a set, in later rounds.
    """

    width: int = 60
    parents: int = 12
    extensions: int = 100
    rows: int = 100
    largest: int = 7
    rounds: int = 3
    last_resort: int = 16

    def for_the_rest(self) -> Beam:
        """Return the sizes of later rounds: narrower and deeper."""
        width, parents = max(1, self.width // 3), max(1, self.parents // 2)
        return replace(self, width=width, parents=parents, largest=self.last_resort)


def set_edits(sets: Sequence[ThenSet], space: FeatureSpace, like: Tensor) -> Edits:
    """Return the edits that "then" sets stand for, in the dtype of `like` (n, d)."""
    fixed = np.zeros((len(sets), space.width), dtype=bool)
    value = np.zeros((len(sets), space.width), dtype=np.float32)
    for row, changes in enumerate(sets):
        for then in changes:
            columns = list(space.features[then.feature].columns)
            fixed[row, columns] = True
            if space.features[then.feature].one_hot:
                value[row, columns[int(then.value)]] = 1.0
            else:
                value[row, columns[0]] = then.value
    return Edits(
        shift=torch.zeros(len(sets), space.width, dtype=like.dtype, device=like.device),
        fixed=torch.as_tensor(fixed, device=like.device),
        value=torch.as_tensor(value).to(like),
    )


def beam_search(
    problem: Problem, items: Sequence[Then], beam: Beam
) -> tuple[list[ThenSet], Tried]:
    """Return "then" sets and what they do to every fitted row.

    Hard flip rates are all zero for small sets where many changes are needed, so sets are ranked
    by the mean margin of the target, half of the beam by how many rows they flip at what cost.
    """
    query = problem.query
    rows = problem.sample(beam.rows)
    found: dict[ThenSet, None] = {}
    tried: list[Tried] = []
    for number in range(beam.rounds):
        known, part = len(found), query.select(rows)
        sizes = beam.for_the_rest() if number else beam
        found |= dict.fromkeys(_one_beam(part, problem, items, sizes))
        fresh = list(found)[known:]
        if not fresh:
            break
        edits = set_edits(fresh, problem.space, query.x)
        tried.append(predict_edits(query, edits, problem.price))
        helped = torch.cat([t.flips for t in tried]).any(0)
        rows = (~helped).nonzero()[:, 0][: beam.rows]
        if len(rows) <= 0.01 * len(query) or query.budget.expired:
            break
    empty = query.x.new_zeros(0, len(query))
    return list(found), Tried(
        margin=torch.cat([empty, *(t.margin for t in tried)]),
        cost=torch.cat([empty, *(t.cost for t in tried)]),
    )


def _one_beam(query: Query, problem: Problem, items: Sequence[Then], beam: Beam) -> list[ThenSet]:
    level: list[ThenSet] = [(i,) for i in items]
    singles: list[Then] = []
    kept: list[ThenSet] = []
    for size in range(1, beam.largest + 1):
        if not level:
            break
        tried = predict_edits(query, set_edits(level, problem.space, query.x), problem.price)
        soft = tried.margin.mean(1)
        worth = (tried.flips * (1 - tried.cost / problem.price.largest).clamp(min=0)).mean(1)
        best = _best(soft, worth, beam.width)
        kept += [level[i] for i in best]
        if size == 1:
            order = soft.argsort(descending=True, stable=True)[: _extensions(query, beam)]
            singles = [level[i][0] for i in order.tolist()]
        if float(tried.flips.to(soft).mean(1).max()) >= ENOUGH or query.budget.expired:
            break
        level = _extend([level[i] for i in _best(soft, worth, beam.parents)], singles)
    return kept


def _extensions(query: Query, beam: Beam) -> int:
    """Return how many single changes extend a set: fewer where rows are very wide."""
    values = beam.parents * len(query) * query.x.shape[1]
    return max(10, min(beam.extensions, LEVEL_VALUES // values))


def _best(soft: Tensor, worth: Tensor, count: int) -> list[int]:
    """Return positions: alternately the next best by soft score and by worth."""
    by_soft = soft.argsort(descending=True, stable=True).tolist()
    by_worth = worth.argsort(descending=True, stable=True).tolist()
    useful = [i for i in by_worth if float(worth[i]) > 0]
    mixed = [i for pair in zip(by_soft, useful, strict=False) for i in pair]
    return list(dict.fromkeys([*mixed, *by_soft]))[:count]


def _extend(parents: list[ThenSet], singles: list[Then]) -> list[ThenSet]:
    """Add every single change to every set that does not touch its feature yet."""
    out: dict[ThenSet, None] = {}
    for parent in parents:
        used = {t.feature for t in parent}
        for single in singles:
            if single.feature not in used:
                grown = sorted((*parent, single), key=lambda t: t.feature)
                out[tuple(grown)] = None
    return list(out)
